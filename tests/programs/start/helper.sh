#!/bin/sh
# Starts a helper, which a unikernel cannot.
failing 0 argument
echo "not reached"
