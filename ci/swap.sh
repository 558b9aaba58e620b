#!/usr/bin/env bash
# Checks that real crates pass their own tests with kinlock in place of parking_lot: by
# [patch.crates-io], or by one line of the manifest. Prints which passed, and fails if one did not.
#
# ci/swap.sh [CRATE...]: only these. Some crates run only if they are named.
set -euo pipefail
root=$PWD work=$PWD/target/swap
rm -rf "$work" && mkdir -p "$work"
# Warnings in the crates of others do not matter here. Line tables would double the time.
export RUSTFLAGS="--cap-lints allow" CARGO_PROFILE_DEV_DEBUG=0
export CARGO_TARGET_DIR="$root/target/swap-build"

# Fetches the sources of a crate, and prints where they are.
sources_of() {
    mkdir -p "$work/fetch-$1/src" && touch "$work/fetch-$1/src/lib.rs"
    {
        printf '[package]\nname = "fetch"\nversion = "0.0.0"\n[workspace]\n'
        printf '[dependencies]\n%s = "=%s"\n' "$1" "$2"
    } >"$work/fetch-$1/Cargo.toml"
    cargo fetch --quiet --manifest-path "$work/fetch-$1/Cargo.toml" || return 1
    local manifest
    manifest=$(cargo metadata --format-version 1 --manifest-path "$work/fetch-$1/Cargo.toml" |
        grep -o "\"manifest_path\":\"[^\"]*/$1-$2/Cargo.toml\"" | cut -d '"' -f 4)
    dirname "$manifest"
}

# As in the program of a user: the facades replace parking_lot and parking_lot_core, for the crate
# and all that it uses.
patch_all() {
    cat >>Cargo.toml <<EOF

[patch.crates-io]
parking_lot = { path = "$root/lib/parking-lot" }
parking_lot_core = { path = "$root/lib/parking-lot-core" }
EOF
}

# Replaces one line: the manifest names the crate kinlock itself.
one_line() {
    local ours="package = \"kinlock\"\npath = \"$root/lib/kinlock\""
    sed -i "/^\[dependencies\.parking_lot\]/{n;s|^version = .*|$ours|}" Cargo.toml
    grep -q 'package = "kinlock"' Cargo.toml
}

passed=() failed=() skipped=()
# try CRATE VERSION HOW ARGUMENTS...: runs `cargo test ARGUMENTS...` for a crate.
try() {
    local crate=$1 version=$2 how=$3 from
    shift 3
    [ -z "$only" ] || [[ " $only " == *" $crate "* ]] || return 0
    if ! from=$(sources_of "$crate" "$version"); then
        skipped+=("$crate $version")
        return
    fi
    cp -r "$from" "$work/$crate"
    echo "---- $crate $version, by $how"
    if (cd "$work/$crate" && rm -f Cargo.lock rust-toolchain* &&
        printf '\n[workspace]\n' >>Cargo.toml && "$how" &&
        cargo test --quiet "$@" && uses_ours "$how"); then
        passed+=("$crate $version")
    else
        failed+=("$crate $version")
    fi
}

# Checks that the tests were built with kinlock, and with a patch also without the real parking_lot.
uses_ours() {
    cargo tree --quiet --all-features --edges normal,dev --target all --prefix none >tree
    grep -q '^kinlock v' tree || return 1
    [ "$1" = one_line ] || ! grep -E '^parking_lot(_core)? v' tree | grep -qv "$root/lib/parking-lot"
}

only=$*
# r2d2's tests that race under any mutex are left out. `events`: one thread releases the lock and
# then reports that, and another one may acquire it and report in between. Others compare two
# sleeps: connections expire in one thread after two seconds, and another thread counts them after
# two seconds plus the time in which the pool was filled, 0.05 to 0.4 ms. The faster the lock, the
# more often it counts too few. Or a connection comes back after 50 ms to a thread that waits for
# 100 ms. The rest demand that other threads run within a second, or that a wait of one second takes
# less than two.
try r2d2 0.8.10 one_line -- --skip test::events --skip test_max_lifetime --skip idle_timeout \
    --skip test::get_timeout --skip test_get_global_timeout --skip min_idle \
    --skip initialization_failure
try string_cache 0.8.9 patch_all
try measureme 12.0.3 patch_all
try prometheus 0.14.0 patch_all --lib
try serial_test 3.5.0 patch_all
try governor 0.10.4 patch_all --lib
try once_cell 1.21.4 patch_all --features parking_lot
try dashmap 6.1.0 patch_all
# These crates take minutes, and run only if they are named.
if [ -n "$only" ]; then
    try moka 0.12.16 patch_all --features sync --lib
    try tokio 1.54.1 patch_all --features full,test-util --lib --test sync_mutex \
        --test sync_rwlock --test sync_semaphore --test sync_notify --test sync_watch \
        --test sync_mpsc --test rt_threaded
fi

[ ${#skipped[@]} = 0 ] ||
    printf 'WARNING: cannot be fetched, NOT tested with kinlock: %s\n' "${skipped[@]}" >&2
[ ${#passed[@]} = 0 ] || printf 'passed with kinlock in place of parking_lot: %s\n' "${passed[@]}"
if [ ${#failed[@]} != 0 ]; then
    printf 'FAILED with kinlock in place of parking_lot: %s\n' "${failed[@]}" >&2
    exit 1
fi
