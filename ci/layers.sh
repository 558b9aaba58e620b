#!/usr/bin/env bash
# What the compiler does not forbid: an arrow (what uses what) from a building to one above it (lib,
# tools, lab, lowest first; read from [dependencies] in Cargo.toml), a circle of modules at any
# depth, and an algorithm, in a module `raw`, that names std, core::sync or libc instead of its
# platform. Prints the top-level modules of each crate, lowest first.
#
# Arrows between modules are the paths that begin in the parent of both, by `crate::` or `super::`,
# also through what the parent imports from its children, and through `use super::*`. A module's
# file and its children are one unit: the file calls its children, and they use what it declares.
# Left out: comments, and tests, which stand at the end of a file or in files of their own.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 ci/lib/layers.py
