#!/usr/bin/env bash
# All of our locks under stress, for 5 seconds each, and once more where membarrier is refused. The same for concurrency IDs and for the backends of delayed invalidation.
# With SECONDS (before a release: 60) for so long each, and also what is broken on purpose, which must be caught: exit status 1. Without, `cargo test --workspace` has shown that.
set -euo pipefail
seconds=${1:-5}
cargo build --release -p kinlock-cli
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
