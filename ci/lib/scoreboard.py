#!/usr/bin/env python3
"""Compares the errors of simulated numbers with recorded ones: NOW RECORDED [--record] TABLE...

NOW is what `kinlock-lab reproduce --csv` writes of these tables: columns, ratios and observations,
of all rows. Numbers that the scale forces are left out: the first of each table that is scaled. A
simulation that stands for several rows counts once, with the largest of its errors. Fails if an
error has grown by more than 5 points, if a number is gone, or if the median error of the speed-ups
of CNA, over all rows, is beyond 10 %.
"""
import csv
import sys

GROWTH = 5.0
MEDIAN = 10.0
FIELDS = ["table", "threads", "column", "error_pct"]


def errors(path):
    """The signed error in percent by table, number of threads and column."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            # What has no target has no verdict; the recorded file has numbers with targets only.
            if row["error_pct"] and row.get("pass", "true"):
                key = row["table"], row["threads"], row["column"]
                error = float(row["error_pct"])
                found[key] = max(found.get(key, 0.0), error, key=abs)
    return found


def record(now, path):
    with open(path, "w", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(FIELDS)
        out.writerows([*key, f"{error:.2f}"] for key, error in now.items())


def median(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def say(what, all_errors):
    """Prints how far numbers are off, and returns the median of that."""
    if not all_errors:
        return 0.0
    sizes = [abs(error) for error in all_errors]
    middle, largest = median(sizes), max(all_errors, key=abs)
    beyond = sum(size > 20 for size in sizes)
    print(
        f"{what}: {len(sizes)} numbers, median error {middle:.1f} %, largest {largest:+.0f} %, "
        f"{beyond} beyond 20 %"
    )
    return middle


def main():
    now, path = errors(sys.argv[1]), sys.argv[2]
    if "--record" in sys.argv[3:]:
        record(now, path)
        return 0
    tables = sys.argv[3:]
    before = {key: error for key, error in errors(path).items() if key[0] in tables}
    wrong = [f"{t}: nothing is recorded" for t in tables if t not in {key[0] for key in before}]
    wrong += [f"{t}, {n} threads, {c}: no longer there" for t, n, c in before if (t, n, c) not in now]
    wrong += [
        f"{key[0]}, {key[1]} threads, {key[2]}: {before[key]:+.1f} % before, {error:+.1f} % now"
        for key, error in now.items()
        if key in before and abs(error) > abs(before[key]) + GROWTH
    ]
    speedups = [e for (t, _, c), e in now.items() if t.startswith("cna-") and c == "speedup"]
    if say("speed-ups of CNA, all rows", speedups) > MEDIAN:
        wrong.append(f"the median error of the speed-ups of CNA is beyond {MEDIAN:.0f} %")
    say("throughput of CNA and stock, all rows",
        [e for (t, _, c), e in now.items() if t.startswith("cna-") and c != "speedup"])
    say("all numbers of all tables", list(now.values()))
    for line in wrong:
        print(f"scoreboard: {line}", file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main())
