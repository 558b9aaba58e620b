#!/usr/bin/env bash
# Random schedules of locks, concurrency IDs and delayed invalidation: 10,000 of each.
# With the argument SCHEDULES: that many of each, and then also the seeded defects, which must be
# caught (exit status 1). Without it, they are checked by `ci/deep.sh` only.
set -euo pipefail
cd "$(dirname "$0")/.."
schedules=${1:-10000}
. ci/lib/command.sh
for what in "locks --locks" "ids --policies" "invalidation --backends"; do
    read -r primitive flag <<<"$what"
    "$kinlock" explore "$primitive" --quiet --schedules "$schedules"
    [ $# -gt 0 ] || continue
    status=0
    # Most are caught within a thousand schedules, the stale request of a writer within 100,000.
    "$kinlock" explore "$primitive" --quiet "$flag" busted --schedules 100000 || status=$?
    if [ "$status" != 1 ]; then
        echo "exit status $status: not all that is broken on purpose was caught" >&2
        exit 1
    fi
done
