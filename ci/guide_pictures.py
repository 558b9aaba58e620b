#!/usr/bin/env python3
"""Makes the pictures of docs/guide/simulator.md and the table beside them, with the laboratory itself.

    ci/guide_pictures.py           writes them
    ci/guide_pictures.py --check   fails if one differs from what it would write

Simulated results are the same on every host. LAB=PATH takes a kinlock-lab that is built already.
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
    "handoffs-lock2": "--machine haswell-ex-4s --locks qspinlock,cna-v10,cna --workload lock2 --threads 36",
}
# The run whose table the guide shows.
SHOWN = "handoffs-lock2"
TABLE = re.compile(r"(<!-- table: ci/guide_pictures.py -->\n\n```text\n).*?(```\n)", re.DOTALL)


def command():
    if path := os.environ.get("LAB"):
        return path
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "kinlock-lab"], cwd=ROOT, check=True)
    return str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/kinlock-lab")


def main():
    lab, check = command(), sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    wanted = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, words in RUNS.items():
            file = pathlib.Path(folder) / f"{name}.svg"
            run = [lab, "sim", *words.split(), "--trace-handoffs", file]
            text = subprocess.run(run, check=True, capture_output=True, text=True).stdout
            wanted[PICTURES / file.name] = file.read_text()
            if name == SHOWN:
                table = "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"
    guide, tables = TABLE.subn(lambda found: found[1] + table + found[2], GUIDE.read_text())
    if tables != 1:
        sys.exit(f"{GUIDE}: {tables} places for the table")
    wanted[GUIDE] = guide
    differ = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if check and differ:
        sys.exit("\n".join(f"{path.relative_to(ROOT)} is not what ci/guide_pictures.py makes" for path in differ))
    PICTURES.mkdir(exist_ok=True)
    for path in differ:
        path.write_text(wanted[path])


main()
