#!/usr/bin/env bash
# Documentation builds without warnings: no broken links.
set -euo pipefail
libraries=(-p kinlock-core -p kinlock-linux -p kinlock -p kinlock-ids -p kinlock-invalidation)
RUSTDOCFLAGS="-D warnings" cargo doc "${libraries[@]}" --no-deps \
    --features kinlock/events,kinlock/deadlock_detection
