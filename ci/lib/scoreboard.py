#!/usr/bin/env python3
"""Compares the errors of simulated speed-ups with recorded ones: NOW RECORDED [--record] TABLE...

NOW is what `kinlock reproduce --csv` writes of these tables. Rows that the scale forces, those with
one thread, do not count. Rows that share a simulation count once. Fails if an error has grown by
more than 5 points, or a row or all rows of a table are gone.
"""
import csv
import sys

GROWTH = 5.0


def errors(path):
    """By table and number of threads: the error of the speed-up in percent, without its sign."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["column"] == "speedup" and row["error_pct"] and int(row["threads"]) > 1:
                found.setdefault((row["table"], row["threads"]), abs(float(row["error_pct"])))
    return found


def record(now, path):
    with open(path, "w", encoding="utf-8") as file:
        file.write("table,threads,column,error_pct\n")
        for (table, threads), error in now.items():
            file.write(f"{table},{threads},speedup,{error:.2f}\n")


def main():
    now, path = errors(sys.argv[1]), sys.argv[2]
    if "--record" in sys.argv[3:]:
        record(now, path)
        return 0
    tables = sys.argv[3:]
    before = {(table, n): error for (table, n), error in errors(path).items() if table in tables}
    worse = [f"{t}: nothing is recorded" for t in tables if t not in {table for table, _ in before}]
    worse += [f"{t}, {n} threads: no longer there" for t, n in before if (t, n) not in now]
    worse += [
        f"{t}, {n} threads: {before[t, n]:.1f} % before, {error:.1f} % now"
        for (t, n), error in now.items()
        if (t, n) in before and error > before[t, n] + GROWTH
    ]
    judged = sorted(
        error for (table, n), error in now.items() if table.startswith("cna-") and int(n) >= 8
    )
    if judged:
        middle = (judged[(len(judged) - 1) // 2] + judged[len(judged) // 2]) / 2
        print(
            f"speed-ups of CNA, {len(judged)} rows of 8 threads and more: "
            f"median error {middle:.1f} %, largest {judged[-1]:.1f} %"
        )
    for line in worse:
        print(f"scoreboard: {line}", file=sys.stderr)
    return 1 if worse else 0


sys.exit(main())
