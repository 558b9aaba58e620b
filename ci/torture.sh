#!/usr/bin/env bash
# Tortures all of our locks, concurrency IDs and backends of delayed invalidation, for 2 seconds
# each, and locks and invalidation once more with membarrier refused.
# With the argument SECONDS (before a release: 60): for that long each, and then also invalidation
# and sequences that are broken on purpose, which must be caught (exit status 1). ci/mutants.sh has
# the locks and allocators of IDs that are broken on purpose.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-2}
without=$((seconds < 5 ? seconds : 5))
. ci/lib/command.sh

catches() {
    local status=0
    "$kinlock" torture "$@" || status=$?
    if [ "$status" != 1 ]; then
        echo "exit status $status: not all that is broken on purpose was caught" >&2
        exit 1
    fi
}

"$kinlock" torture locks --seconds "$seconds"
"$kinlock" torture locks --without-membarrier --seconds "$without"
"$kinlock" torture ids --seconds "$seconds"
"$kinlock" torture invalidation --seconds "$seconds"
"$kinlock" torture invalidation --without-membarrier --seconds "$without"
if [ $# -gt 0 ]; then
    catches ids --ids busted --seconds 3
    catches invalidation --backends busted --threads 16 --seconds 10
fi
