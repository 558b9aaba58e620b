#!/usr/bin/env bash
# Documentation builds without warnings: no broken links.
set -euo pipefail
RUSTDOCFLAGS="-D warnings" cargo doc -p kinlock --no-deps --features events
