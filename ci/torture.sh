#!/usr/bin/env bash
# All of our locks under stress, and locks that are broken on purpose.
set -euo pipefail
seconds=${1:-60}
cargo build --release -p kinlock-cli
for topology in none 2; do
    timeout 600 target/release/kinlock torture locks --seconds "$seconds" --topology "$topology"
done
if timeout 300 target/release/kinlock torture locks --locks busted --seconds 10; then
    echo "locks broken on purpose passed" >&2
    exit 1
fi
