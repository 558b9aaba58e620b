#!/usr/bin/env bash
# Algorithms run on hardware, in a simulator and under a model checker only as long as they ask their Platform for everything.
set -euo pipefail
if grep -rnE 'std::|core::sync|libc' crates/*/src/raw crates/*/src/raw.rs --include='*.rs' | grep -vE '/tests(\.rs|/[a-z_]+\.rs):' | grep -vE '^\S+\s*//[/!]'; then
    echo "a raw/ names std, core::sync or libc: ask the Platform instead" >&2
    exit 1
fi
