#!/usr/bin/env python3
"""Makes the tables of docs/results/README.md, and the README's picture, from the summaries there.

    ci/readme_table.py            rewrites that page between its two markers, and the picture
    ci/readme_table.py --check    fails if either differs from what would be written

A summary is docs/results/DATE-MACHINE.json, written by ci/summarise_results.py. The build is the
commit of the newest runs of the grid. All measured tables are of this build, on every machine that
has runs of it; runs of other builds are not shown, so that no two builds stand side by side.
"""

import argparse
import csv
import json
import sys
from math import exp, log
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
PICTURE = "mutex-grid.svg"
OURS, STD, OTHER = "kinlock-mutex", "std-mutex", "parking-lot"
PEERS = [STD, OTHER, "pthread-mutex"]
# The workloads that the page shows: a description, the name, the numbers of threads.
WORKLOADS = [
    ("lock and unlock, no contention", "empty", (1,)),
    ("counter (a few ns held, 100 ns between)", "counter", (2,)),
    ("cache with least-recently-used eviction", "lru", (4,)),
    ("two threads that wake each other (`Condvar`)", "pingpong", (2,)),
]
GRID_THREADS = {"grid": (2, 16, 64), "wide": (2, 4, 16)}
SIMULATED = [
    ("locktorture", "cna-locktorture.csv", (1, 2, 4, 16, 72)),
    ("lock2", "cna-lock2.csv", (1, 2, 4, 16, 72)),
]
SIMULATED_LOCKS = ["qspinlock", "cna-v10", "cna"]
# The programs that contend come first.
PROGRAMS = [
    ("sysbench-mutex", "`sysbench mutex`, one mutex"),
    ("kccachetest-order", "Kyoto Cabinet, `kccachetest order`"),
    ("rocksdb-one-shard", "RocksDB `readrandom`, block cache of one shard"),
    ("git-pack-objects", "`git pack-objects`"),
    ("rocksdb-readrandom", "RocksDB `readrandom`"),
    ("kccachetest-wicked", "Kyoto Cabinet, `kccachetest wicked`"),
    ("redis-io-threads", "Redis, four I/O threads"),
]
CONTENDED = 4


def fail(text):
    sys.exit(f"readme_table.py: {text}")


def load(results):
    """The summaries, oldest first: [(path, summary)]."""
    found = []
    for path in sorted(results.glob("*.json")):
        try:
            summary = json.loads(path.read_text())
            summary["kind"], summary["machine"], summary["runs"]
        except (ValueError, KeyError, TypeError) as error:
            fail(f"{path} is no summary: {error!r}")
        found.append((path, summary))
    return found


def build(summaries):
    """The commit of the newest runs of the grid."""
    for _, summary in reversed(summaries):
        commits = {run.get("commit") for run in summary["runs"] if summary["kind"] == "measured" and is_grid(run)}
        if len(commits) > 1:
            fail(f"the newest grid is of several builds: {', '.join(sorted(commits))}")
        if commits:
            return commits.pop()
    fail("no summary has the grid")


def newest(summaries, kind, wanted):
    """Of each machine the newest summary that has runs which `wanted` takes: [(path, machine, runs)]."""
    machines = {}
    for path, summary in summaries:
        runs = [run for run in summary["runs"] if wanted(run)]
        if summary["kind"] == kind and runs:
            machine = summary["machine"]
            machines[machine.get("cpu") or machine.get("name"), machine.get("usable_cpus")] = (path, machine, runs)
    return sorted(machines.values(), key=lambda each: -each[1].get("usable_cpus", 0))


def cells(path, runs):
    """The results by (workload, threads), each a dictionary by lock."""
    found = {}
    for run in runs:
        for result in run["results"]:
            locks = found.setdefault((result["workload"], result["threads"]), {})
            if result["lock"] in locks and result["lock"] != STD:
                fail(f"{path}: {result['lock']} has {result['workload']} with {result['threads']} threads twice")
            locks[result["lock"]] = result
    return found


def digits(value):
    """Three significant digits at most, two above 100."""
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}"


def factor(value):
    return (f"{value:.2f}" if value < 9.995 else digits(value)) + "x"


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


def table(*heads):
    return ["", row(*heads), row(*["---"] * len(heads))]


def bold_best(texts, values):
    best = max(value for value in values if value is not None)
    return [f"**{text}**" if value == best else text for text, value in zip(texts, values)]


def short(machine):
    """The processor's name without its maker's marks, and how many CPUs of it."""
    name = machine["cpu"].replace("(R)", "").replace(" Processor", "")
    return f"{name}, {machine['usable_cpus']} CPUs"


def link(path):
    return f"[summary]({path.name})"


def links(machines):
    named = [f"[{short(machine)}]({path.name})" for path, machine, _ in machines]
    return "Summaries: " + ", ".join(named) + "."


def speed(result):
    return result["ops_per_s"]["median"]


def is_grid(run):
    """A run of `bench` on the grid of mutexes: not of `validate`, nor of spinlocks."""
    return any(
        result.get("workload", "").startswith("grid:") and result["lock"] == OURS and "ops_per_s" in result
        for result in run["results"]
    )


def mixes(path, runs, threads, hogs, part="grid"):
    """The cells of a part of the grid, "grid" or "wide" as runs are named: [(workload, locks)]."""
    found = []
    for run in runs:
        # Runs of a single round have long slices and answer another question.
        if run["parameters"]["hogs"] != hogs or run["parameters"]["rounds"] < 2 or not run["name"].startswith(part):
            continue
        for (workload, count), locks in cells(path, [run]).items():
            if count == threads and workload.startswith("grid:") and all(name in locks for name in (OURS, *PEERS)):
                found.append((workload, locks))
    return found


def ratios(found):
    return [speed(locks[OURS]) / max(speed(locks[peer]) for peer in PEERS) for _, locks in found]


def mean(values):
    return exp(sum(map(log, values)) / len(values))


def grid(machines):
    lines = [
        "**Measured: the mutex under twelve mixes** of critical section (0 to 20 us), private work (0 to 10 us)",
        "and data touched (2 to 128 cache lines). Throughput over the best of std, parking_lot and glibc in that",
        "mix: geometric mean of the twelve, and the worst of them. CPU time per operation: lowest and highest of",
        "the twelve ratios. The longest wait of any thread, in any mix.",
        "*Background load*: a CPU-bound process that runs during the measurement.",
    ]
    heads = ["machine", "threads", "background load", "mean", "worst mix", "CPU time over std's"]
    lines += table(*heads, "longest wait, kinlock", "parking_lot", "std")
    lines += grid_rows(machines, "grid")
    longer = grid_rows(machines, "wide")
    if longer:
        lines += [
            "",
            "**Measured: longer sections.** The same for six mixes with sections of 2 to 200 us, constant,",
            "exponentially distributed or asleep, and private work up to 1 ms.",
        ]
        lines += table(*heads, "longest wait, kinlock", "parking_lot", "std") + longer
    return lines + ["", links(machines)]


def grid_rows(machines, part):
    lines = []
    for path, machine, runs in machines:
        for threads in GRID_THREADS[part]:
            for hogs in (0, 1):
                found = mixes(path, runs, threads, hogs, part)
                if not found:
                    continue
                waits = [max(locks[lock]["acquire_ns"]["max"] for _, locks in found) for lock in (OURS, OTHER, STD)]
                values = ratios(found)
                texts = [short(machine), str(threads), "one process" if hogs else "none"]
                cpu = [locks[OURS]["cpu_ns_per_op"] / locks[STD]["cpu_ns_per_op"] for _, locks in found]
                spent = f"{factor(min(cpu))} to {factor(max(cpu))}"
                texts += [factor(mean(values)), factor(min(values)), spent]
                lines.append(row(*texts, *map(time, waits)))
    return lines


def measured(path, machine, runs):
    found = cells(path, runs)
    lines = [
        f"**Measured: single workloads** on {short(machine)}, a virtual machine, {machine['kernel']},",
        f"{machine['libc']} ({link(path)}). Medians of rounds; the ratio to std is taken within each round, in",
        "brackets the lowest and the highest. CPU time is that of all threads, divided by operations.",
    ]
    heads = ["workload", "threads", "kinlock", "std", "parking_lot", "over std"]
    lines += table(*heads, "p99.9 wait, kinlock", "p99.9 wait, std", "CPU time, kinlock", "CPU time, std")
    rows = 0
    for label, workload, counts in WORKLOADS:
        for threads in counts:
            locks = found.get((workload, threads), {})
            if OURS not in locks or STD not in locks:
                continue
            ours, std = locks[OURS], locks[STD]
            if ours["ratio"]["to"] != STD:
                fail(f"{path}: ratios of {workload} are to {ours['ratio']['to']}, not to {STD}")
            shown = [ours, std, locks.get(OTHER)]
            rates = [lock and speed(lock) for lock in shown]
            if threads == 1:
                texts = [time(lock["ns_per_op"]["median"]) if lock else "" for lock in shown]
            else:
                texts = [rate(value) + "/s" if value else "" for value in rates]
            tails = [time(lock["acquire_ns"]["p999"]) if threads > 1 else "" for lock in (ours, std)]
            cpu = [time(lock["cpu_ns_per_op"]) if threads > 1 else "" for lock in (ours, std)]
            over = "{} [{}, {}]".format(*(factor(ours["ratio"][key]) for key in ("median", "min", "max")))
            lines.append(row(label, str(threads), *bold_best(texts, rates), over, *tails, *cpu))
            rows += 1
    if not rows:
        fail(f"{path}: nothing that the table shows")
    return lines


def programs(machines):
    """What `kinlock compare` measured of programs that nobody here wrote."""
    lines = [
        "**Measured: unmodified programs**, kinlock's mutex over glibc's by `kinlock compare`: lowest and highest",
        "of the medians with 2 to 64 threads. *Contended*: largest share of acquisitions that found the lock held.",
    ]
    states = [(path, machine, runs, hogs) for path, machine, runs in machines for hogs in (0, 1)]
    heads = [f"{short(machine)}" + (", background load" if hogs else "") for _, machine, _, hogs in states]
    lines += table("program", "contended", *heads)
    contended, columns = [], [[] for _ in states]
    for at, (name, about) in enumerate(PROGRAMS):
        texts, shares = [], []
        for column, (_, _, runs, hogs) in zip(columns, states):
            chosen = [run for run in runs if run["name"].startswith(name) and run["parameters"]["hogs"] == hogs]
            ours = [result for run in chosen for result in run["results"] if result["lock"] == OURS]
            values = [result["ratio"]["median"] for result in ours]
            shares += [run["counting"]["contended"] / run["counting"]["locked"] for run in chosen]
            if not values:
                texts.append("")
                continue
            contended += [about] if at < CONTENDED and about not in contended else []
            column += values if at < CONTENDED else []
            low, high = factor(min(values)), factor(max(values))
            texts.append(low if low == high else f"{low} to {high}")
        if shares:
            lines.append(row(about, f"{100 * max(shares):.2g} %", *texts))
    mean_of = f"geometric mean of the first {len(contended)}"
    lines.append(row(mean_of, "", *(factor(mean(column)) if column else "" for column in columns)))
    return lines + ["", links(machines)]


def simulated(path, machine, runs):
    """The kernel's lock, CNA v10 and our default, and what was published of the first two."""
    found = cells(path, runs)
    lines = [
        "### Simulated: CNA",
        "",
        f"Not measured: {machine['about']} ({link(path)}).",
        "Operations per microsecond, longest wait. The last two columns compare the simulated ratio of CNA v10 to",
        "the kernel's lock with the published one, measured on such a machine in 2020.",
        "[All published tables](published/README.md) beside simulated ones are of an older build and more seeds.",
    ]
    heads = ["workload", "threads", "kernel's lock (model)", "CNA v10 (model)", "kinlock's CNA"]
    lines += table(*heads, "ratio, simulated", "ratio, published")
    rows = 0
    for workload, name, counts in SIMULATED:
        with (ROOT / "lab/sim/published" / name).open() as file:
            rows_of_file = csv.DictReader(line for line in file if not line.startswith("#"))
            published = {int(each["threads"]): float(each["speedup"]) for each in rows_of_file}
        for threads in counts:
            locks = found.get((workload, threads), {})
            if not all(name in locks for name in SIMULATED_LOCKS):
                continue
            speeds = [locks[name]["ops_per_us"]["median"] for name in SIMULATED_LOCKS]
            texts = bold_best([f"{value:.2f}" for value in speeds], speeds)
            waits = [locks[name]["acquire_ns"]["max"] for name in SIMULATED_LOCKS]
            unended = [locks[name].get("unended_ns", {"write": 0})["write"] for name in SIMULATED_LOCKS]
            marks = [">" if 0 < nanos <= limit else "" for nanos, limit in zip(waits, unended)]
            texts = [f"{text}, {mark}{time(nanos)}" for text, mark, nanos in zip(texts, marks, waits)]
            lines.append(row(workload, str(threads), *texts, factor(speeds[1] / speeds[0]), factor(published[threads])))
            rows += 1
    if not rows:
        fail(f"{path}: nothing that the table shows")
    if any(", >" in line for line in lines):
        lines += ["", "`>`: the wait ended only after the run."]
    return lines


def picture(machines, built):
    """Bars: each mix of the grid on the machine with the most CPUs, our throughput over the best peer's."""
    path, machine, runs = machines[0]
    found = mixes(path, runs, 16, 0)
    bars = sorted(zip(ratios(found), (workload for workload, _ in found)), reverse=True)
    left, top, high, width = 230, 74, 22, 760
    scale, height = (width - left - 60) / bars[0][0], top + high * len(bars) + 34
    one = left + scale

    def text(x, y, words, extra=""):
        return f'<text x="{x:.0f}" y="{y:.0f}" {extra}>{words}</text>'

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(12, 22, "Throughput of kinlock::Mutex over the best of std, parking_lot and glibc", 'font-size="15"'),
        text(12, 42, f"measured: 16 threads on {short(machine)} (virtual machine), build {built}", 'fill="#555"'),
        text(left - 8, top - 8, "held, private work, cache lines", 'text-anchor="end" fill="#555"'),
    ]
    for tick in range(int(bars[0][0]) + 1):
        x = left + scale * tick
        lines.append(f'<path d="M{x:.0f} {top - 4}V{height - 26}" stroke="{"#333" if tick == 1 else "#ddd"}"/>')
        lines.append(text(x, height - 10, f"{tick:g}x", 'text-anchor="middle" fill="#555"'))
    for at, (ratio, workload) in enumerate(bars):
        y = top + high * at
        held, private, data = workload.removeprefix("grid:").split("/")
        lines.append(text(left - 8, y + 14, f"{held}, {private}, {data}", 'text-anchor="end"'))
        start, end = sorted((one, left + scale * ratio))
        place = f'x="{start:.1f}" y="{y + 3}" width="{end - start:.1f}" height="{high - 7}"'
        lines.append(f'<rect {place} fill="{"#2166ac" if ratio >= 1 else "#b2182b"}"/>')
        lines.append(text(max(one, end) + 6, y + 14, f"{ratio:.2f}x"))
    return "\n".join(lines + ["</svg>"]) + "\n"


def made(results):
    """The tables, and the picture."""
    summaries = load(results)
    built = build(summaries)

    def newest_built(wanted):
        return newest(summaries, "measured", lambda run: run.get("commit") == built and wanted(run))

    grids = newest_built(is_grid)
    plain = {"alone", "counter", "maps", "pingpong"}
    parts = [[f"All measured tables are of build {built}. The simulated one names its own."], grid(grids)]
    parts += [measured(*each) for each in newest_built(lambda run: run["name"] in plain)]
    compared = newest_built(lambda run: any("value" in result for result in run["results"]))
    parts += [programs(compared)] if compared else []
    names = {workload for workload, _, _ in SIMULATED}
    parts += [simulated(*each) for each in newest(summaries, "simulated", lambda run: run["name"] in names)]
    return "\n\n".join("\n".join(part) for part in parts), picture(grids, built)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the page or the picture differs")
    parser.add_argument("--results", type=Path, default=ROOT / "docs/results", help="folder of summaries")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/results/README.md")
    options = parser.parse_args()

    text, drawn = made(options.results)
    old = options.page.read_text()
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(BEGIN) > old.index(END):
        fail(f"{options.page} does not have {BEGIN} and after it {END}, each once")
    new = old[: old.index(BEGIN) + len(BEGIN)] + "\n" + text + "\n" + old[old.index(END) :]
    for path, wanted in ((options.page, new), (options.results / PICTURE, drawn)):
        if path.exists() and path.read_text() == wanted:
            continue
        if options.check:
            fail(f"{path} is not what docs/results says: run ci/readme_table.py")
        path.write_text(wanted)


if __name__ == "__main__":
    main()
