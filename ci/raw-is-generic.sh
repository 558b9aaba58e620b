#!/usr/bin/env bash
# Algorithms ask their Platform for everything. Otherwise they could not run in the simulator and
# under the model checker.
set -euo pipefail
if grep -rnE 'std::|core::sync|libc' lib/*/src/raw lib/*/src/raw.rs --include='*.rs' |
    grep -vE '/tests(\.rs|/[a-z_]+\.rs):' | grep -vE '^\S+\s*//[/!]'; then
    echo "a raw/ names std, core::sync or libc: ask the Platform instead" >&2
    exit 1
fi
