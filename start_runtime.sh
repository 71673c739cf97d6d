#!/bin/sh
# Sets up (once) and starts the whole runtime in the foreground: ./start_runtime.sh [SPEC…] [options of `resweep up`]
# Needs Python 3.11 or newer with its venv module, and git. PYTHON names the interpreter to set up with.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=$(sh "$root/deploy/prepare.sh" product)
unset PYTHONHOME

# -P: the folder this is called from may hold anybody's files; Python must not import from it.
exec "$python" -P -m resweep.runner up "$@"
