#!/usr/bin/env bash
# Plays random schedules of locks, concurrency IDs and delayed invalidation: 10,000 for each
# subject.
# With the argument SCHEDULES: that many for each subject, and then also the defects of
# invalidation, which must be caught (exit status 1). ci/mutants.sh has the defects of locks and
# IDs.
set -euo pipefail
cd "$(dirname "$0")/.."
schedules=${1:-10000}
. ci/lib/command.sh
for primitive in locks ids invalidation; do
    "$kinlock" explore "$primitive" --quiet --schedules "$schedules"
done
if [ $# -gt 0 ]; then
    status=0
    "$kinlock" explore invalidation --quiet --backends busted --schedules 100000 || status=$?
    if [ "$status" != 1 ]; then
        echo "exit status $status: not all that is broken on purpose was caught" >&2
        exit 1
    fi
fi
