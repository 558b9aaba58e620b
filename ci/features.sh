#!/usr/bin/env bash
# Other targets, fewer features, the oldest supported compiler.
set -euo pipefail
cargo check -p kinlock --no-default-features
cargo check -p kinlock --target aarch64-unknown-linux-gnu
cargo check -p kinlock --target aarch64-unknown-linux-gnu --no-default-features
msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if rustup toolchain list | grep -q "^$msrv"; then
    cargo "+$msrv" check -p kinlock --target-dir target/msrv
else
    echo "!!!! Rust $msrv is not installed: the minimum version was NOT checked" >&2
fi
