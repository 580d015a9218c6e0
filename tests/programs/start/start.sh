#!/bin/sh -e
# Sets things up and ends in exec, as start scripts of images do.
: "${GREETING:=hello}"
if [ "${1#-}" != "$1" ]; then
    set -- failing "$@"
fi
cd /tmp
printf '%s\n' "$GREETING" >greeting
read -r line <greeting
echo "script: $line, $# arguments"
export PATH=/bin
exec "$@"
