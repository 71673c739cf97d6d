#!/bin/sh
# Prints the interpreter of the prepared environment: prepare.sh product|dev. Talk goes to stderr.
# PYTHON names the interpreter to make the environment with; else the first fitting one of the usual names is taken.
set -eu

unset PYTHONHOME # it would lead a virtual environment astray
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
prepared=$here/../.venv/bin/python

fits() { "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
makes() { "$1" -I -c 'import venv, ensurepip' >/dev/null 2>&1; }
say() { printf 'resweep: %s\n' "$*" >&2; }

if [ -n "${PYTHON:-}" ]; then
    fits "$PYTHON" || { say "PYTHON=$PYTHON is not a Python 3.11 or newer"; exit 1; }
    exec "$PYTHON" -I "$here/environment.py" "$1"
fi

# The usual start: everything is there already, and no other interpreter has to be looked for.
if [ -x "$prepared" ] && "$prepared" -I "$here/environment.py" --ready "$1" 2>/dev/null; then
    exit 0
fi

# The oldest supported one first: it is the one the tests run on.
without_venv=''
for name in python3.11 python3.12 python3.13 python3.14 python3 python; do
    fits "$name" || continue
    if makes "$name"; then
        exec "$name" -I "$here/environment.py" "$1"
    fi
    [ -n "$without_venv" ] || without_venv=$name
done

if [ -n "$without_venv" ]; then
    say "$without_venv is new enough but has no venv module with pip in it; install it" \
        "(Debian and Ubuntu: apt-get install $without_venv-venv) and start again"
else
    say "no Python 3.11 or newer found (looked for python3.11 to python3.14, python3 and python);" \
        "install one, or name it: PYTHON=/path/to/python"
fi
exit 1
