#!/bin/sh
# Sets up (once) and runs the tests.
#   ./run_tests.sh               the quick part: everything that takes seconds, on what this machine has
#   ./run_tests.sh ARGUMENTS…    exactly these tests: the arguments go to pytest
#   ./run_tests.sh --everything  lint, types, layers, docs and every test; what .ci/run calls
# A part that needs something this machine has not (a pooler, an older PostgreSQL, …) is named at the end as not run;
# RESWEEP_TEST_REQUIRE=all turns "not run" into a failure.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=$(sh "$root/deploy/prepare.sh" dev)
unset PYTHONHOME
cd "$root"

# Two processes: the tests share a server and run real scanners, more would only wait for the same cores. Tests that
# name one group run one after the other.
parallel="-n 2 --dist loadgroup"

if [ "${1:-}" = --everything ]; then
    shift
    wrong=''
    for session in lint types layers docs; do
        "$python" -m nox --no-venv --session "$session" || wrong="$wrong $session"
    done
    if [ -n "${RESWEEP_TEST_OLDER_DATABASE_URL:-}" ]; then
        printf '\n== tests/database on the given older server ==\n'
        # shellcheck disable=SC2086 # two words
        RESWEEP_TEST_DATABASE_URL=$RESWEEP_TEST_OLDER_DATABASE_URL \
            "$python" -m pytest $parallel tests/database "$@" || wrong="$wrong tests/database@older"
    fi
    if [ -n "$wrong" ]; then
        printf '\nresweep: these went wrong, see above:%s; the tests follow\n' "$wrong" >&2
    fi
    status=0
    # shellcheck disable=SC2086 # two words
    "$python" -m pytest $parallel -m "not campaign" "$@" || status=$?
    [ -z "$wrong" ] || { printf 'resweep: before the tests, these went wrong:%s\n' "$wrong" >&2; exit 1; }
    exit "$status"
fi

if [ $# -gt 0 ]; then
    exec "$python" -m pytest "$@"
fi
# shellcheck disable=SC2086 # two words
exec "$python" -m pytest $parallel -m "not slow and not seeded and not campaign"
