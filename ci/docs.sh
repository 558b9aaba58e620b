#!/usr/bin/env bash
# Documentation builds without warnings: no broken links.
set -euo pipefail
RUSTDOCFLAGS="-D warnings" cargo doc -p kinlock-core -p kinlock -p kinlock-ids -p kinlock-invalidation --no-deps --features kinlock/events
