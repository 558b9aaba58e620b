#!/usr/bin/env bash
# Formatting.
set -euo pipefail
cargo fmt --all --check
