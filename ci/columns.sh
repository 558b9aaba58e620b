#!/usr/bin/env bash
# No comment in Rust is wider than 100 columns, no line of README.md and ci/*.sh wider than 120.
# A column is a character, not a byte. Each offender is printed with its width.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "${KINLOCK_ROOT:-$here/..}"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/lib exec python3 - <<'EOF'
import pathlib
import sys

import rust_source as rust

COMMENT, PLAIN = 100, 120
bad = []
for path in rust.rust_files():
    text = path.read_text()
    kinds = rust.kinds(text)
    start = 0
    for number, line in enumerate(text.split("\n"), 1):
        end = start + len(line)
        if len(line) > COMMENT and rust.COMMENT in kinds[start:end]:
            bad.append(f"{path}:{number}: a comment ends in column {len(line)}, limit {COMMENT}")
        start = end + 1
for path in [pathlib.Path("README.md"), *sorted(pathlib.Path("ci").glob("*.sh"))]:
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if len(line) > PLAIN:
            bad.append(f"{path}:{number}: {len(line)} columns, limit {PLAIN}")
print(*bad, sep="\n", end="\n" if bad else "")
if bad:
    sys.exit(f"{len(bad)} lines are too wide")
EOF
