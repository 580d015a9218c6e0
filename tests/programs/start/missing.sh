#!bin/no-such-interpreter
