#!/usr/bin/env bash
# All of our locks, concurrency IDs and backends of delayed invalidation under stress, for 5 seconds each;
# locks and invalidation once more where membarrier is refused.
# With the argument SECONDS (before a release: 60): for that long each, and then also the seeded defects,
# which must be caught (exit status 1). Without it, they are checked by `ci/deep.sh` only.
set -euo pipefail
seconds=${1:-5}
# Not `-p kinlock-cli`: that selects other features, and a plain `cargo run` would build all again.
cargo run --release --quiet -- --version
kinlock=${CARGO_TARGET_DIR:-target}/release/kinlock

catches() {
    local status=0
    "$kinlock" torture "$@" || status=$?
    if [ "$status" != 1 ]; then
        echo "exit status $status: not all that is broken on purpose was caught" >&2
        exit 1
    fi
}

"$kinlock" torture locks --seconds "$seconds"
"$kinlock" torture locks --without-membarrier --seconds 5
"$kinlock" torture ids --seconds "$seconds"
"$kinlock" torture invalidation --seconds "$seconds"
"$kinlock" torture invalidation --without-membarrier --seconds 5
if [ $# -gt 0 ]; then
    catches locks --locks busted --seconds 3
    catches ids --ids busted --seconds 3
    catches invalidation --backends busted --threads 16 --seconds 10
fi
