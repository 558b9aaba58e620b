#!/usr/bin/env bash
# Checks the formatting.
set -euo pipefail
cargo fmt --all --check
