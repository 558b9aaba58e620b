#!/usr/bin/env bash
# All of our locks under stress, for SECONDS each (default 5; before a release, 60), once more for 5 seconds where membarrier is refused, and locks that are broken on
# purpose, which must be caught: exit status 1. The same for concurrency IDs and for the backends of delayed invalidation.
set -euo pipefail
seconds=${1:-5}
cargo build --release -p kinlock-cli
kinlock=${CARGO_TARGET_DIR:-target}/release/kinlock
"$kinlock" torture locks --seconds "$seconds"
"$kinlock" torture locks --without-membarrier --seconds 5
"$kinlock" torture ids --seconds "$seconds"
status=0
"$kinlock" torture locks --locks busted --seconds 3 || status=$?
if [ "$status" != 1 ]; then
    echo "exit status $status: locks broken on purpose were not all caught" >&2
    exit 1
fi
status=0
"$kinlock" torture ids --ids busted --seconds 3 || status=$?
if [ "$status" != 1 ]; then
    echo "exit status $status: concurrency IDs broken on purpose were not all caught" >&2
    exit 1
fi
"$kinlock" torture invalidation --seconds "$seconds"
"$kinlock" torture invalidation --without-membarrier --seconds 5
status=0
"$kinlock" torture invalidation --backends busted --threads 16 --seconds 10 || status=$?
if [ "$status" != 1 ]; then
    echo "exit status $status: domains of delayed invalidation broken on purpose were not all caught" >&2
    exit 1
fi
