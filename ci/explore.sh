#!/usr/bin/env bash
# Random schedules of all of ours, 20000 of each: locks, concurrency IDs, delayed invalidation.
# With SCHEDULES so many of each, and also what is broken on purpose, which must be caught: exit status 1. Without, `cargo test --workspace` has shown that.
set -euo pipefail
schedules=${1:-20000}
cargo build --release -p kinlock-cli
kinlock=${CARGO_TARGET_DIR:-target}/release/kinlock
for what in "locks --locks" "ids --policies" "invalidation --backends"; do
    read -r primitive flag <<<"$what"
    "$kinlock" explore "$primitive" --quiet --schedules "$schedules"
    [ $# -gt 0 ] || continue
    status=0
    "$kinlock" explore "$primitive" --quiet "$flag" busted || status=$?
    if [ "$status" != 1 ]; then
        echo "exit status $status: not all that is broken on purpose was caught" >&2
        exit 1
    fi
done
