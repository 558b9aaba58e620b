#!/usr/bin/env bash
# Builds the documentation. Warnings, such as broken links, are errors.
set -euo pipefail
libraries=(-p kinlock-core -p kinlock-linux -p kinlock -p kinlock-ids -p kinlock-invalidation)
RUSTDOCFLAGS="-D warnings" cargo doc "${libraries[@]}" --no-deps \
    --features kinlock/events,kinlock/deadlock_detection
