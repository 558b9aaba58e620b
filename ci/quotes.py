#!/usr/bin/env python3
"""Figures that the documents quote are those of the recorded files.

A quote is marked by a comment behind the paragraph or table that has it:

    <!-- quoted from docs/results/published/reproduced.json:
         1.02 = cna-locktorture : 4 : speedup : simulated -->

One comment for each file. The number has to stand in that paragraph, and to be what the file has
there, rounded to as many digits. Keys of docs/results/published/reproduced.json: table, row,
column, and `published`, `simulated` or `error_pct`; or a table, or `all`, and `met` or `targets`.
Keys of the other files in docs/results: the run, the workload, the number of threads, the lock,
and the names of fields.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"<!--\s*quoted from (\S+):\n?(.*?)-->", re.DOTALL)
QUOTE = re.compile(r"(-?[\d.]+) = ([^=]+?)(?=\s+-?[\d.]+ = |\s*$)")


def value(report, keys):
    """What a file has at the keys."""
    if report["kind"] == "reproduced":
        if len(keys) == 2:
            tables = report["tables"]
            chosen = tables.values() if keys[0] == "all" else [tables[keys[0]]]
            return sum(table[keys[1]] for table in chosen)
        table = report["tables"][keys[0]]
        label, column, field = keys[1:]
        rows = [row for row in table["rows"] if (row["label"], row["column"]) == (label, column)]
        return rows[0][field]
    run, workload, threads, lock, *fields = keys
    results = next(each for each in report["runs"] if each["name"] == run)["results"]
    wanted = workload, threads, lock
    found = [r for r in results if (r.get("workload"), str(r.get("threads")), r.get("lock")) == wanted][0]
    for field in fields:
        found = found[field]
    return found


def wrong(path, text):
    """What is wrong with the quotes of a document, and how many there are."""
    errors, quotes = [], 0
    for mark in MARK.finditer(text):
        # Marks of several files may follow each other.
        before = MARK.sub("", text[: mark.start()]).rstrip().split("\n\n")[-1]
        body = " ".join(mark[2].split())
        found = QUOTE.findall(body)
        if not found:
            errors.append(f"{path}: a mark without a quote: {body}")
        for number, keys in found:
            quotes += 1
            try:
                report = json.loads((ROOT / mark[1]).read_text())
                recorded = value(report, [key.strip() for key in keys.split(" : ")])
            except (OSError, KeyError, IndexError, StopIteration, ValueError) as error:
                errors.append(f"{path}: {keys} is not in {mark[1]}: {error!r}")
                continue
            decimals = len(number.partition(".")[2])
            if round(recorded, decimals) != float(number):
                errors.append(f"{path}: {keys} is {recorded} in {mark[1]}, quoted as {number}")
            # The number must not be part of a longer one. The text may leave out its sign.
            here = re.compile(rf"(?<![\d.]){re.escape(number.lstrip('-'))}(?![\d]|\.\d)")
            if not here.search(before):
                errors.append(f"{path}: {number} ({keys}) does not stand in the paragraph before")
    return errors, quotes


def main():
    if sys.argv[1:]:
        sys.exit(__doc__)
    errors, quotes = [], 0
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        more, count = wrong(path.relative_to(ROOT), path.read_text())
        errors += more
        quotes += count
    for error in errors:
        print(f"quotes: {error}", file=sys.stderr)
    if not quotes:
        sys.exit("quotes: no document has one, so this checks nothing")
    print(f"{quotes} quotes")
    return 1 if errors else 0


sys.exit(main())
