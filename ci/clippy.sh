#!/usr/bin/env bash
# Lints, warnings denied, in every configuration of the library.
set -euo pipefail
cargo clippy --workspace --all-targets -- -D warnings
cargo clippy -p kinlock-core -p kinlock --no-default-features -- -D warnings
cargo clippy -p kinlock --features events -- -D warnings
RUSTFLAGS="--cfg loom" cargo clippy -p kinlock-core -p kinlock-ids -p kinlock-invalidation \
    --target-dir target/loom --tests -- -D warnings
