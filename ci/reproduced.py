#!/usr/bin/env python3
"""Published tables beside simulated ones: makes docs/results/published.

    ci/reproduced.py             fails if the page there is not made of the recorded numbers
    ci/reproduced.py --write     writes the page from the recorded numbers
    ci/reproduced.py --record    simulates anew (some minutes), and writes numbers, pictures and page
    ci/reproduced.py --compare [TABLE...]
                                 simulates all tables or these with one seed, and fails if a number
                                 is off by 5 points more than in any recorded seed, if one is gone,
                                 or if the median error of CNA's speed-ups is beyond 10 %

The numbers are those of `kinlock-lab reproduce`, and the same on every host. KINLOCK=PATH takes a
command that is built already, with kinlock-lab beside it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/results/published"
NUMBERS, PAGE = FOLDER / "reproduced.json", FOLDER / "README.md"
SEEDS = 3
GROWTH, MEDIAN = 5, 10
TITLE = {
    "cna-lock2": "NUMA-aware spinlock: `lock2`",
    "cna-locktorture": "NUMA-aware spinlock: `locktorture`",
    "cna-open1": "NUMA-aware spinlock: `open1`",
    "cna-leveldb-readrandom": "NUMA-aware spinlock: LevelDB's `readrandom`",
    "mutex-spinners": "Queued spinners of the mutex: AIM7 `fserver`",
    "mutex-aim7-others": "Queued spinners of the mutex: AIM7's other workloads",
    "osq-prev-cpu": "Cancellable queue: the predecessor's CPU number copied",
    "osq-own-line": "Cancellable queue: the CPU number in a line of its own",
    "invalidation": "Delayed invalidation",
    "invalidation-ours": "Delayed invalidation, over our mutex",
    "invalidation-polled": "Delayed invalidation, over a mutex that polls",
    "invalidation-96": "Delayed invalidation by epochs, 96 CPUs",
    "cid-200ms": "Concurrency IDs, a burst every 200 ms",
    "cid-10ms": "Concurrency IDs, a burst every 10 ms",
}


def fail(text):
    sys.exit(f"reproduced.py: {text}")


def command():
    if path := os.environ.get("KINLOCK"):
        return path
    run = ["bash", "-euc", '. ci/lib/command.sh && echo "$kinlock"']
    return subprocess.run(run, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def short(value):
    """Five significant digits."""
    return float(f"{value:.5g}")


def condensed(row):
    """A row as it is kept."""
    simulated = row["simulated"]
    kept = {"threads": row["key"], "label": row["label"], "column": row["column"]}
    kept["simulated"] = short(simulated["median"])
    kept["low"], kept["high"] = short(simulated["low"]), short(simulated["high"])
    for name in ("published", "published_sd", "simulated_sd", "error_pct"):
        if row.get(name) is not None:
            kept[name] = short(row[name])
    for name in ("pass", "too_good", "note"):
        if row.get(name) not in (None, ""):
            kept[name] = row[name]
    return kept


def simulate(names, seeds, folder, *more):
    """What the command reports of these tables."""
    words = ["reproduce", *names, "--seeds", str(seeds), "--band", "0", "--quiet"]
    words += ["--json", folder / "all.json", *more]
    subprocess.run([command(), *words], check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "all.json").read_text())


def rows_of(table):
    return [condensed(row) for row in table["rows"] + table.get("observed", [])]


def errors(tables):
    """How far off each number with a target is, in percent.

    A simulation that stands for several rows counts once, with the largest of its errors.
    """
    found = {}
    for name, rows in tables.items():
        for row in rows:
            if "pass" in row:
                key = name, row["threads"], row["column"]
                found[key] = max(found.get(key, 0), abs(row["error_pct"]))
    return found


def compare(names):
    with tempfile.TemporaryDirectory() as folder:
        report = simulate(names, SEEDS, Path(folder))
    now = errors({table["table"]: rows_of(table) for table in report["tables"]})
    recorded = json.loads(NUMBERS.read_text())["tables"]
    before = errors({name: recorded[name]["rows"] for name in names})
    wrong = []
    for key, error in before.items():
        what = "{}, {} threads, {}".format(*key)
        if key not in now:
            wrong.append(f"{what}: no longer there")
        elif now[key] > error + GROWTH:
            wrong.append(f"{what}: {error:.1f} % off before, {now[key]:.1f} % now")
    speedups = [error for (name, _, column), error in now.items() if name.startswith("cna-") and column == "speedup"]
    if speedups and (middle := statistics.median(speedups)) > MEDIAN:
        wrong.append(f"the median error of the speed-ups of CNA is {middle:.1f} %")
    middle, largest = statistics.median(now.values()), max(now.values())
    print(f"{len(now)} numbers, median error {middle:.1f} %, largest {largest:.0f} %")
    if wrong:
        fail("\n".join(["further off than recorded:", *wrong]))


def record():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        report = simulate(TITLE, SEEDS, folder, "--plot", folder / "all.svg")
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name in TITLE:
            (FOLDER / f"{name}.svg").write_text((folder / f"all-{name}.svg").read_text())
    tables = {}
    for table in report["tables"]:
        names = {name: table[name]["name"] for name in ("stock", "cna") if name in table}
        names = names or dict((name, lock["name"]) for name, lock in table["policies"])
        tables[table["table"]] = {
            "source": table["source"],
            "machine": table["machine"]["name"],
            "workload": table["workload"]["name"],
            "locks": list(names.values()),
            "unit": table["unit"],
            "targets": table["targets"],
            "met": table["met"],
            "rows": rows_of(table),
        }
        if table.get("scale"):
            tables[table["table"]]["scale"] = short(table["scale"])
    head = {
        "kind": "reproduced",
        "command": f"kinlock-lab reproduce --seeds {SEEDS} --band 0",
        "version": report["version"],
        "commit": report["commit"],
        "seeds": report["seeds"],
    }
    # One line per number, so that a diff shows which numbers have changed.
    lines = [json.dumps(head)[:-1] + ', "tables": {']
    for n, (name, table) in enumerate(tables.items()):
        rows = table.pop("rows")
        lines.append(f'"{name}": ' + json.dumps(table)[:-1] + ', "rows": [')
        lines += [json.dumps(row) + "," * (row is not rows[-1]) for row in rows]
        lines.append("]}" + "," * (n + 1 < len(tables)))
    NUMBERS.write_text("\n".join([*lines, "}}", ""]))


def digits(value):
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def cell(row):
    """`published / simulated (error)`; what misses its target is bold."""
    published = row.get("published")
    simulated = digits(row["simulated"])
    if published is None:
        return f"– / {simulated}"
    deviation = f"±{row['published_sd']:.2g}" if row.get("published_sd") else ""
    text = f"{digits(published)}{deviation} / {simulated} ({row['error_pct']:+.0f} %)"
    return f"**{text}**" if row.get("pass") is False else text


def section(name, table):
    rows = table["rows"]
    columns = list(dict.fromkeys(row["column"] for row in rows))
    labels = list(dict.fromkeys(row["label"] for row in rows))
    cells = {(row["label"], row["column"]): row for row in rows}
    whole = [c for c in columns if all((label, c) in cells for label in labels)]
    lines = ["", f"## {TITLE[name]}", ""]
    lines.append(f"![{name}: published and simulated numbers over rows]({name}.svg)")
    lines.append("")
    locks = ", ".join(f"`{lock}`" for lock in table["locks"])
    lines.append(f"`{name}`. Published: {table['source']}. Simulated: {locks} under `{table['workload']}` on")
    lines.append(f"`{table['machine']}`, in {table['unit']}. {table['met']} of {table['targets']} targets are met.")
    lines += ["", "| " + " | ".join(["row", *whole]) + " |", "| " + " | ".join(["---"] * (len(whole) + 1)) + " |"]
    for label in labels:
        lines.append("| " + " | ".join([label, *(cell(cells[label, c]) for c in whole)]) + " |")
    inside = [row for row in rows if row["column"] not in whole]
    for row in inside:
        lines += ["", f"Inside, {row['label']}: {row['column']} {cell(row)}."]
    notes = {}
    for row in rows:
        if row.get("note"):
            notes.setdefault(row["note"], []).append(row["label"])
    for note, which in notes.items():
        which = ", ".join(dict.fromkeys(which))
        lines += ["", f"*{which}*: {note}."]
    return lines


def page():
    report = json.loads(NUMBERS.read_text())
    tables = report["tables"]
    if list(tables) != list(TITLE):
        fail(f"{NUMBERS.relative_to(ROOT)} has other tables than this script: record it anew")
    cna = [r for n, t in tables.items() if n.startswith("cna-") for r in t["rows"] if r["column"] == "speedup"]
    middle = statistics.median(abs(row["error_pct"]) for row in cna)
    met, targets = (sum(t[what] for t in tables.values()) for what in ("met", "targets"))
    lines = [
        "# Published and simulated, side by side",
        "",
        "<!-- made by ci/reproduced.py -->",
        "",
        f"Every table that others published and that the simulator can run, by `{report['command']}`.",
        "Each cell has the published number, the simulated one and the error of that. Behind ± stands",
        "the standard deviation of one published run, where it was published; that of a ratio is",
        "computed from those of its columns. Simulated numbers are medians of",
        f"{len(report['seeds'])} seeds; in the pictures rings are published numbers, and bands reach over these seeds.",
        "Nothing here was measured by us. In the tables of CNA `stock` is a model of Linux' lock and",
        "`cna` one of CNA v10; kinlock's own lock stands beside both in [another",
        "table](../README.md#simulated-cna).",
        "",
        "A **bold** cell misses its target: 25 % for a throughput, a time or an observation, 10 %",
        "for a ratio, which must also have the same lock ahead, or neither: within 3 %, or within",
        "the published deviation if that is larger. What is better than published misses as what",
        "is worse does. Constants were fitted on stock cells of `lock2` and `locktorture` with 1 to 8",
        "threads ([which](../../guide/simulator.md#4-how-far-to-trust-it)); they count as all others.",
        "Below each table stands what is known of the causes.",
        f"{met} of {targets} targets are met, counting each simulation once. The median error of the",
        f"{len(cna)} speed-ups of CNA, all rows, is {middle:.1f} %. Of [tables that were predicted before they were",
        "looked up](blind.md), but for some 15 of their numbers, 276 of 348 targets are met, and the median error "
        "of the speed-ups is 6.4 %.",
        "The [numbers](reproduced.json) have the deviations over the seeds, too;",
        "[how far to trust them](../../guide/simulator.md#4-how-far-to-trust-it) is in the guide.",
    ]
    for name, table in tables.items():
        lines += section(name, table)
    return "\n".join([*lines, ""])


def main():
    what = sys.argv[1:]
    if what[:1] == ["--compare"] and set(what[1:]) <= set(TITLE):
        return compare(what[1:] or list(TITLE))
    if what not in ([], ["--write"], ["--record"]):
        sys.exit(__doc__)
    if what == ["--record"]:
        record()
    if what:
        PAGE.write_text(page())
        return
    missing = [name for name in TITLE if not (FOLDER / f"{name}.svg").exists()]
    if missing:
        fail(f"no picture of {', '.join(missing)}")
    if PAGE.read_text() != page():
        fail(f"{PAGE.relative_to(ROOT)} is not what ci/reproduced.py --write makes")


main()
