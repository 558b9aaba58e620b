#!/usr/bin/env bash
# Random schedules of all of ours, SCHEDULES of each (default 20000): locks, concurrency IDs, delayed invalidation. And of what is broken on purpose, which must be caught: exit status 1.
set -euo pipefail
schedules=${1:-20000}
cargo build --release -p kinlock-cli
target=${CARGO_TARGET_DIR:-target}
for what in "locks --locks" "ids --policies" "invalidation --backends"; do
    read -r primitive flag <<<"$what"
    "$target/release/kinlock" explore "$primitive" --quiet --schedules "$schedules"
    status=0
    "$target/release/kinlock" explore "$primitive" --quiet "$flag" busted || status=$?
    if [ "$status" != 1 ]; then
        echo "exit status $status: not all that is broken on purpose was caught" >&2
        exit 1
    fi
done
