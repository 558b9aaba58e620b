#!/usr/bin/env bash
# The checks of layers, columns and lengths can fail: a small tree passes, and each seeded violation is
# found and printed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export KINLOCK_ROOT
KINLOCK_ROOT=$(mktemp -d)
trap 'rm -rf "$KINLOCK_ROOT"' EXIT
tree=$KINLOCK_ROOT

# A library and a crate above it, with what must not be mistaken for a violation.
plant() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree"/{ci,docs/decisions} "$tree"/crates/{kinlock,kinlock-core}/src
    echo "# read me" >"$tree/README.md"
    printf '[package]\nname = "kinlock-core"\n[dependencies]\n' >"$tree/crates/kinlock-core/Cargo.toml"
    printf '[package]\nname = "kinlock"\n[dependencies]\nkinlock-core = "1"\n' >"$tree/crates/kinlock/Cargo.toml"
    echo 'pub mod low;' >"$tree/crates/kinlock-core/src/lib.rs"
    echo 'pub struct Low;' >"$tree/crates/kinlock-core/src/low.rs"
    printf 'mod a;\nmod b;\npub use a::A;\n' >"$tree/crates/kinlock/src/lib.rs"
    printf 'use crate::b::B;\npub struct A(B);\n' >"$tree/crates/kinlock/src/a.rs"
    {
        echo '//! See [`crate::a`]; "crate::a".'
        echo 'pub struct B;'
        echo 'const T: &str = "crate::a // '"$(printf 'x%.0s' {1..120})"'";'
        echo '#[cfg(all(test, not(loom)))]'
        echo 'mod tests { use crate::a::A; fn long() {'
        printf '%.0s\n' {1..90}
        echo '} }'
    } >"$tree/crates/kinlock/src/b.rs"
}

expect() {
    local script=$1 expected=$2 output status=0
    output=$("$here/$script.sh" 2>&1) || status=$?
    if [ "$status" = 0 ] || ! grep -qF -- "$expected" <<<"$output"; then
        echo "$script.sh does not say '$expected' (exit status $status): $output" >&2
        exit 1
    fi
}

plant
for script in layers columns lengths; do
    "$here/$script.sh" >/dev/null || { echo "$script.sh fails on a tree without a violation" >&2; exit 1; }
done

echo 'fn f() { super::a::g() }' >>"$tree/crates/kinlock/src/b.rs"
expect layers "b -> a: crates/kinlock/src/b.rs:"
plant
echo 'use crate::{low::Low, A};' >>"$tree/crates/kinlock/src/b.rs"
expect layers "b -> a: crates/kinlock/src/b.rs:"
plant
echo 'kinlock = "1"' >>"$tree/crates/kinlock-core/Cargo.toml"
expect layers "kinlock-core -> kinlock does not run down"
expect layers "a circle of 2: kinlock, kinlock-core"
plant
sed -i 's/"kinlock-core"$/"odd"/' "$tree/crates/kinlock-core/Cargo.toml"
expect layers "odd has no place in the list"

for mark in // /// '//!' 'fn f() {} //'; do
    plant
    echo "$mark $(printf 'ä%.0s' {1..100})" >>"$tree/crates/kinlock/src/a.rs"
    expect columns "crates/kinlock/src/a.rs:3: a comment ends in column"
done
plant
printf 'x%.0s' {1..121} >>"$tree/README.md"
expect columns "README.md:2: 121 columns, limit 120"
plant
printf '#%.0s' {1..121} >"$tree/ci/x.sh"
expect columns "ci/x.sh:1: 121 columns"

plant
{ echo 'fn long(x: [u8; 2]) {'; printf '%.0s\n' {1..79}; echo '}'; } >>"$tree/crates/kinlock/src/a.rs"
expect lengths "crates/kinlock/src/a.rs:3: fn long has 81 lines, limit 80"
plant
printf '%.0s\n' {1..599} >>"$tree/crates/kinlock/src/a.rs"
expect lengths "crates/kinlock/src/a.rs: 601 lines, limit 600"
plant
mkdir -p "$tree/crates/kinlock-cli/src"
printf '[package]\nname = "kinlock-cli"\n' >"$tree/crates/kinlock-cli/Cargo.toml"
for n in {1..40}; do printf '%.0s\n' {1..600} >"$tree/crates/kinlock-cli/src/f$n.rs"; done
expect lengths "crates/kinlock-cli: 24000 lines of Rust, limit 23750"
plant
for n in {1..157}; do printf '%.0s\n' {1..600} >"$tree/crates/kinlock/src/f$n.rs"; done
expect lengths "lines of Rust, limit 93400"
plant
printf '%.0s\n' {1..150} >>"$tree/README.md"
expect lengths "README.md: 151 lines, limit 150"
plant
printf '%.0s\n' {1..26} >"$tree/docs/decisions/0001-x.md"
expect lengths "docs/decisions/0001-x.md: 26 lines, limit 25"

# The scoreboard: an error that grows by 5 points passes, by more it fails, and so does a row that is gone.
score() {
    printf 'table,threads,column,error_pct\ncna-x,8,speedup,%s\n' "$1"
}
score 4 >"$tree/recorded.csv"
score -9 >"$tree/now.csv"
python3 "$here/scoreboard.py" "$tree/now.csv" "$tree/recorded.csv" >/dev/null
score -9.1 >"$tree/now.csv"
if python3 "$here/scoreboard.py" "$tree/now.csv" "$tree/recorded.csv" >/dev/null 2>&1; then
    echo "scoreboard.py does not see that an error has grown" >&2
    exit 1
fi
score 4 | head -1 >"$tree/now.csv"
if python3 "$here/scoreboard.py" "$tree/now.csv" "$tree/recorded.csv" >/dev/null 2>&1; then
    echo "scoreboard.py does not see that a row is gone" >&2
    exit 1
fi
