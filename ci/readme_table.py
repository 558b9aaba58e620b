#!/usr/bin/env python3
"""Makes the README's tables of results from the raw JSON under docs/results.

    ci/readme_table.py            rewrites the README between its two markers
    ci/readme_table.py --check    fails if the README differs from what would be written
    ci/readme_table.py --print    writes the tables to stdout and changes nothing

Each folder of docs/results holds the JSON of `kinlock bench` (measured) or of `kinlock sim`
(simulated). Folder names begin with a date; those with grids end in `-grid`. Of each machine the
newest folder of each sort counts.
"""

import argparse
import json
import sys
from math import exp, log
from pathlib import Path

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
OURS, STD, OTHER = "kinlock-mutex", "std-mutex", "parking-lot"
# What the README shows of what was measured: a label, the workload, the threads.
MEASURED = [
    ("alone", "empty", (1,)),
    ("counter", "counter", (2,)),
    ("LRU cache", "lru", (2, 4, 8, 16)),
    ("ping-pong", "pingpong", (2,)),
]
PEERS = [STD, OTHER, "pthread-mutex"]
SIMULATED = [("locktorture", (4, 72))]
SIMULATED_LOCKS = ["qspinlock", "cna-v10", "cna"]


def fail(text):
    sys.exit(f"readme_table.py: {text}")


def load(results):
    """The reports of each folder: [(folder, [report])], oldest folder first."""
    folders = []
    for folder in sorted(path for path in results.iterdir() if path.is_dir()):
        if folder.name.endswith(("-programs", "-others")):
            continue  # made by `kinlock compare`, or not for the README
        reports = []
        for path in sorted(folder.glob("*.json")):
            try:
                report = json.loads(path.read_text())
                report["kind"], report["machine"], report["results"]
            except (ValueError, KeyError, TypeError) as error:
                fail(f"{path} is no report of kinlock: {error!r}")
            reports.append(report)
        if reports:
            folders.append((folder, reports))
    return folders


def newest(folders, kind, suffix=""):
    """Of each machine the newest folder with reports of that kind, with grids or without."""
    machines = {}
    for folder, reports in folders:
        if folder.name.endswith("-grid") != (suffix == "-grid"):
            continue
        reports = [report for report in reports if report["kind"] == kind]
        if reports:
            machine = reports[0]["machine"]
            machines[machine.get("cpu") or machine.get("name"), machine.get("usable_cpus")] = (folder, reports)
    return list(machines.values())


def cells(folder, reports):
    """The results by (workload, threads), each a dictionary by lock."""
    found = {}
    for report in reports:
        for result in report["results"]:
            locks = found.setdefault((result["workload"], result["threads"]), {})
            if result["lock"] in locks and result["lock"] != STD:
                fail(f"{folder}: {result['lock']} has {result['workload']} with {result['threads']} threads twice")
            locks[result["lock"]] = result
    return found


def digits(value):
    """Three significant digits at most, two above 100."""
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}"


def factor(value):
    return f"{value:.2f}" if value < 9.995 else digits(value)


def rate(value):
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{digits(value / scale)} {unit}"
    return digits(value)


def time(ns):
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{digits(ns / scale)} {unit}"
    return f"{digits(ns)} ns"


def row(*texts):
    return "| " + " | ".join(texts) + " |"


def bold_best(texts, values, best=max):
    winner = best(value for value in values if value is not None)
    return [f"**{text}**" if value == winner else text for text, value in zip(texts, values)]


def measured(folder, reports):
    """One table: our mutex, std's and parking_lot's."""
    found = cells(folder, reports)
    machine = reports[0]["machine"]
    lines = [
        f"**Measured**: {machine['cpu']}, {machine['usable_cpus']} CPUs"
        + (", virtual machine" if machine.get("virtual") else "")
        + f", {machine['kernel'].split('-')[0]}, {machine['libc']}.",
        f"Medians; the ratio is taken within each round ([raw data](docs/results/{folder.name})).",
        "",
        row(
            *("workload", "threads", "kinlock", "std", "parking_lot", "over std [range]"),
            *("p99.9", "std's", "CPU/op", "std's"),
        ),
        row(*["---"] * 10),
    ]
    rows = 0
    for label, workload, counts in MEASURED:
        for threads in counts:
            locks = found.get((workload, threads), {})
            if OURS not in locks or STD not in locks:
                continue
            ours, std = locks[OURS], locks[STD]
            if ours["ratio"]["to"] != STD:
                fail(f"{folder}: ratios of {workload} are to {ours['ratio']['to']}, not to {STD}")
            shown = [ours, std, locks.get(OTHER)]
            rates = [lock and lock["ops_per_s"]["median"] for lock in shown]
            if threads == 1:
                texts = [time(lock["ns_per_op"]["median"]) if lock else "" for lock in shown]
            else:
                texts = [rate(value) + "/s" if value else "" for value in rates]
            ratio = ours["ratio"]
            tails = [time(lock["acquire_ns"]["p999"]) if threads > 1 else "" for lock in (ours, std)]
            cpu = [lock.get("cpu_ns_per_op") for lock in (ours, std)]
            cpu = [time(value["median"]) if value and threads > 1 else "" for value in cpu]
            over = "{} [{}, {}]".format(*(factor(ratio[key]) for key in ("median", "min", "max")))
            lines.append(row(label, str(threads), *bold_best(texts, rates), over, *tails, *cpu))
            rows += 1
    if not rows:
        fail(f"{folder}: nothing that the table shows")
    return lines


def grid(machines):
    """One table: our mutex over all cells of the grid on each machine, quiet and beside other processes."""
    large = [machine for machine in machines if machine[1][0]["machine"]["usable_cpus"] > 2]
    states = [(folder, reports, hogs) for folder, reports in machines for hogs in (0, 1)]
    states = [state for state in states if state[:2] not in large]
    heads = [f"{short(reports)}, {'one busy process' if hogs else 'quiet'}" for _, reports, hogs in states]
    lines = [
        "Twelve mixes of section, private work and cache lines ([maps, raw data](docs/results/README.md)).",
        "Over the best of std, parking_lot and pthread: geometric mean [worst mix]; longest wait / parking_lot's.",
    ]
    for folder, reports in large:
        cpus, name = reports[0]["machine"]["usable_cpus"], f"[{short(reports)}](docs/results/{folder.name})"
        for threads, text in grid_cells(folder, reports, 0).items():
            lines.append(f"{threads} threads, {cpus} CPUs ({name}): {text}. On 2:")
    lines += ["", row("threads", *heads), row(*["---"] * (1 + len(heads)))]
    columns = [grid_cells(*state) for state in states]
    counts = sorted(set().union(*columns))
    for threads in counts:
        for (folder, _, hogs), column in zip(states, columns):
            if threads not in column:
                fail(f"{folder}: no grid with {threads} threads and {hogs} other busy processes")
        lines.append(row(str(threads), *(column[threads] for column in columns)))
    return lines


def short(reports):
    """The processor's name without its maker's marks."""
    return reports[0]["machine"]["cpu"].replace("(R)", "").replace(" Processor", "")


def grid_cells(folder, reports, hogs):
    """The text for each number of threads."""
    found = {}
    for report in reports:
        if report["parameters"]["hogs"] != hogs:
            continue
        for (workload, threads), locks in cells(folder, [report]).items():
            if workload.startswith("grid:") and all(name in locks for name in (OURS, *PEERS)):
                found.setdefault(threads, []).append(locks)
    texts = {}
    for threads, mixes in found.items():
        ratios = [speed(locks[OURS]) / max(speed(locks[peer]) for peer in PEERS) for locks in mixes]
        ours, others = (max(locks[lock]["acquire_ns"]["max"] for locks in mixes) for lock in (OURS, OTHER))
        mean = exp(sum(map(log, ratios)) / len(ratios))
        texts[threads] = f"{mean:.2f} [{min(ratios):.2f}], {ours / 1e6:.0f} / {others / 1e6:.0f} ms"
    return texts


def speed(result):
    return result["ops_per_s"]["median"]


def simulated(folder, reports):
    """One table: the kernel's lock, CNA v10, our default."""
    found = cells(folder, reports)
    machine = reports[0]["machine"]
    lines = [
        f"**Simulated**: {machine['about']}.",
        f"Operations per microsecond [lowest, highest over seeds and over latencies a fifth apart], longest",
        f"wait; the fastest is bold ([raw data](docs/results/{folder.name})).",
        "",
        row("workload", "threads", "the kernel's (model)", "CNA v10 (model)", "our CNA"),
        row(*["---"] * 5),
    ]
    rows = 0
    for workload, counts in SIMULATED:
        for threads in counts:
            locks = found.get((workload, threads), {})
            if not all(name in locks for name in SIMULATED_LOCKS):
                continue
            speeds = [locks[name]["ops_per_us"] for name in SIMULATED_LOCKS]
            texts = bold_best([f"{speed['median']:.2f}" for speed in speeds], [speed["median"] for speed in speeds])
            texts = [
                f"{text} [{speed['low']:.2f}, {speed['high']:.2f}], {time(locks[name]['acquire_ns']['max'])}"
                for text, speed, name in zip(texts, speeds, SIMULATED_LOCKS)
            ]
            lines.append(row(workload, str(threads), *texts))
            rows += 1
    if not rows:
        fail(f"{folder}: nothing that the table shows")
    return lines


def tables(results):
    folders = load(results)
    parts = [measured(*newer) for newer in newest(folders, "measured")]
    grids = newest(folders, "measured", "-grid")
    parts += [grid(grids)] if grids else []
    parts += [simulated(*newer) for newer in newest(folders, "simulated")]
    if not parts:
        return "No results are recorded yet: see [docs/results](docs/results/README.md)."
    return "\n\n".join("\n".join(part) for part in parts)


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the README differs")
    parser.add_argument("--print", action="store_true", help="write the tables to stdout only")
    parser.add_argument("--results", type=Path, default=root / "docs/results", help="folder of folders of JSON")
    parser.add_argument("--readme", type=Path, default=root / "README.md")
    options = parser.parse_args()

    text = tables(options.results)
    if options.print:
        print(text)
        return
    old = options.readme.read_text()
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(BEGIN) > old.index(END):
        fail(f"{options.readme} does not have {BEGIN} and after it {END}, each once")
    new = old[: old.index(BEGIN) + len(BEGIN)] + "\n" + text + "\n" + old[old.index(END) :]
    if new == old:
        return
    if options.check:
        fail(f"{options.readme} is not what docs/results says: run ci/readme_table.py")
    options.readme.write_text(new)


if __name__ == "__main__":
    main()
