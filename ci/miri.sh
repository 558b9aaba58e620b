#!/usr/bin/env bash
# Undefined behaviour and weak memory, interpreted, with several seeds.
set -euo pipefail
MIRIFLAGS="-Zmiri-many-seeds=0..2" cargo +nightly miri test -p kinlock --test spin --target-dir target/miri
# These take minutes per seed.
MIRIFLAGS="-Zmiri-seed=1" cargo +nightly miri test -p kinlock --test mutex --test condvar --target-dir target/miri
# All backends of delayed invalidation but `wide`, which is inline assembly; one test file serves all. It leaks its tags on purpose.
MIRIFLAGS="-Zmiri-seed=1 -Zmiri-ignore-leaks" cargo +nightly miri test -p kinlock --test invalidation --target-dir target/miri
# These tests leak their tables and storage on purpose.
MIRIFLAGS="-Zmiri-ignore-leaks" cargo +nightly miri test -p kinlock --lib --target-dir target/miri -- raw::ids raw::waiter raw::cna::tests::abandoned raw::cna::tests::nobody
