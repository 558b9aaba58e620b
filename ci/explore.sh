#!/usr/bin/env bash
# Random schedules of all of our locks, SCHEDULES of each (default 20000), and of locks that are broken on purpose, which must be caught: exit status 1. The same for delayed invalidation.
set -euo pipefail
schedules=${1:-20000}
cargo build --release -p kinlock-cli
target=${CARGO_TARGET_DIR:-target}
"$target/release/kinlock" explore locks --quiet --schedules "$schedules"
status=0
"$target/release/kinlock" explore locks --quiet --locks busted || status=$?
if [ "$status" != 1 ]; then
    echo "exit status $status: locks broken on purpose were not all caught" >&2
    exit 1
fi
KINLOCK_SCHEDULES=$schedules cargo test --release -p kinlock-verify --test explore_sections
