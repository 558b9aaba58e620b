#!/usr/bin/env bash
# All of our locks under stress, for SECONDS each (default 60), and locks that are broken on purpose, which must be caught: exit status 1.
set -euo pipefail
seconds=${1:-60}
cargo build --release -p kinlock-cli
target/release/kinlock torture locks --seconds "$seconds"
status=0
target/release/kinlock torture locks --locks busted --seconds 5 || status=$?
if [ "$status" != 1 ]; then
    echo "exit status $status: locks broken on purpose were not all caught" >&2
    exit 1
fi
