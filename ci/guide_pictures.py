#!/usr/bin/env python3
"""Makes the pictures of docs/guide/simulator.md and the table beside them, with the command itself.

    ci/guide_pictures.py           writes them
    ci/guide_pictures.py --check   fails if one differs from what it would write

Simulated results are the same on every host. KINLOCK=PATH takes a command that is built already.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GUIDE = ROOT / "docs/guide/simulator.md"
PICTURES = ROOT / "docs/guide/pictures"
PAIR = "--machine haswell-ex-4s --locks qspinlock --placement compact --seconds 0.001"
RUNS = {
    "handoff-long-section": f"{PAIR} --workload grid:400ns/0/2 --threads 4",
    "handoff-short-section": f"{PAIR} --workload lock2 --threads 16",
    "handoffs-lock2": "--machine haswell-ex-4s --locks qspinlock,cna-v10,cna --workload lock2 "
    "--threads 36",
}
# The name of the run whose table the guide shows.
SHOWN = "handoffs-lock2"
TABLE = re.compile(r"(<!-- table: ci/guide_pictures.py -->\n\n```text\n).*?(```\n)", re.DOTALL)


def command():
    if path := os.environ.get("KINLOCK"):
        return path
    build = '. ci/lib/command.sh && echo "$kinlock"'
    run = ["bash", "-euc", build]
    return subprocess.run(run, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main():
    kinlock, check = command(), sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    wanted = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, words in RUNS.items():
            file = pathlib.Path(folder) / f"{name}.svg"
            run = [kinlock, "sim", *words.split(), "--trace-handoffs", file]
            text = subprocess.run(run, check=True, capture_output=True, text=True).stdout
            wanted[PICTURES / file.name] = file.read_text()
            if name == SHOWN:
                table = "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"
    guide, tables = TABLE.subn(lambda found: found[1] + table + found[2], GUIDE.read_text())
    if tables != 1:
        sys.exit(f"{GUIDE}: {tables} places for the table")
    wanted[GUIDE] = guide
    differ = [p for p, text in wanted.items() if not p.exists() or p.read_text() != text]
    if check and differ:
        files = "\n".join(str(path.relative_to(ROOT)) for path in differ)
        sys.exit(f"not what ci/guide_pictures.py makes:\n{files}")
    PICTURES.mkdir(exist_ok=True)
    for path in differ:
        path.write_text(wanted[path])


main()
