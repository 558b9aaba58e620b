#!/usr/bin/env bash
# All of our locks, concurrency IDs and backends of delayed invalidation under stress, for 5 seconds each;
# locks and invalidation once more where membarrier is refused.
# With the argument SECONDS (before a release: 60): for that long each, and then also the seeded defects,
# which must be caught (exit status 1). Without it, they are checked by `ci/deep.sh` only.
set -euo pipefail
seconds=${1:-5}
cargo build --release --quiet -p kinlock-lab
lab=${CARGO_TARGET_DIR:-target}/release/kinlock-lab

catches() {
    local status=0
    "$lab" torture "$@" || status=$?
    if [ "$status" != 1 ]; then
        echo "exit status $status: not all that is broken on purpose was caught" >&2
        exit 1
    fi
}

"$lab" torture locks --seconds "$seconds"
"$lab" torture locks --without-membarrier --seconds 5
"$lab" torture ids --seconds "$seconds"
"$lab" torture invalidation --seconds "$seconds"
"$lab" torture invalidation --without-membarrier --seconds 5
if [ $# -gt 0 ]; then
    catches locks --locks busted --seconds 3
    catches ids --ids busted --seconds 3
    catches invalidation --backends busted --threads 16 --seconds 10
fi
