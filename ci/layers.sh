#!/usr/bin/env bash
# Checks dependencies that the compiler does not forbid. No building may use one above it (lib,
# tools, lab, lowest first; read from [dependencies] in Cargo.toml). Modules must not depend on each
# other in a circle, at any depth. An algorithm, in a module `raw`, must not name std, core::sync or
# libc instead of its platform. Prints the top-level modules of each crate, lowest first.
#
# A module depends on another one if it has a path that begins in the parent of both, by `crate::`
# or `super::`, also through what the parent imports from its children, and through `use super::*`.
# A module's file and its children are one unit: the file calls its children, and they use what it
# declares. Comments are left out, and so are tests, which are at the end of a file or in files of
# their own.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 ci/lib/layers.py
