#!/usr/bin/env python3
"""Condenses recorded runs into the summaries that docs/results keeps.

    ci/summarise_results.py FOLDER...    FOLDER is what ci/record-results.sh or
                                         ci/record-programs.sh wrote

A folder is named DATE-MACHINE or DATE-MACHINE-PART, as `2026-11-25-amd-epyc-grid`. Its runs go into
docs/results/DATE-MACHINE.json: for each run the command, its parameters and warnings, and for each
result the medians with their ranges. Runs of the same name there are replaced. Rounds, counters and
the cells of grids stay in the raw files, which are not kept in the tree.
"""

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

PARTS = ("-grid", "-programs", "-validate")
# Kept for each run, because it may differ between runs on one machine.
OF_RUN = ("load_average", "timer_cost_ns", "timer_resolution_ns", "version", "commit")
PARAMETERS = ("seconds", "rounds", "seed", "hogs", "metric", "lower_is_better", "numa", "local_limit", "domain")


def fail(text):
    sys.exit(f"summarise_results.py: {text}")


def number(value):
    """Five significant digits: more than rounds agree in, and enough to compute ratios from."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def numbers(value):
    return {key: number(each) for key, each in value.items()}


def result(raw):
    """One result: what was run, how fast, how long a waiter waited, and how evenly."""
    kept = {key: raw[key] for key in ("suite", "lock", "workload", "threads") if key in raw}
    for name in ("ops_per_s", "ops_per_us", "ns_per_op", "value", "transfer_ns", "measured_ns", "simulated_ns"):
        # The simulator's operations per second only repeat its operations per microsecond.
        if name in raw and not (name == "ops_per_s" and "ops_per_us" in raw):
            kept[name] = numbers(raw[name])
    if "ops_per_us" in kept or kept.get("threads", 1) > 1:
        kept.pop("ns_per_op", None)
    for name in ("cpu_ns_per_op", "cpu_s", "peak_kib", "switches"):
        if raw.get(name):
            kept[name] = number(raw[name]["median"])
    if "ratio" in raw:
        kept["ratio"] = numbers(raw["ratio"])
    if raw.get("acquire_ns"):
        kept["acquire_ns"] = raw["acquire_ns"]
    if any(raw.get("unended_ns", {}).values()):
        kept["unended_ns"] = raw["unended_ns"]
    if raw.get("acquire_p999_ratio"):
        kept["acquire_p999_ratio"] = number(raw["acquire_p999_ratio"]["median"])
    if raw.get("fairness", {}).get("min_over_mean", 1) < 1:
        kept["min_over_mean"] = number(raw["fairness"]["min_over_mean"])
    if "remote" in raw.get("traffic", {}):
        kept["remote_lines_per_op"] = number(raw["traffic"]["remote"])
    for name in ("noisy", "verdict", "policy", "verified", "lost", "error_pct", "ratio_error_pct"):
        if raw.get(name):
            kept[name] = number(raw[name])
    return kept


def run(path):
    """One run: (kind, machine, what is kept)."""
    raw = json.loads(path.read_text())
    try:
        kind, machine, results = raw["kind"], dict(raw["machine"]), raw["results"]
    except (KeyError, TypeError) as error:
        fail(f"{path} is no report of kinlock: {error!r}")
    kept = {"name": path.stem}
    of_run = {key: machine.pop(key) for key in OF_RUN if key in machine}
    of_run.update({key: raw[key] for key in ("version", "commit") if key in raw})
    kept["commit"] = of_run.get("commit")
    kept["command"] = command(raw.get("command"), path)
    if "load_average" in of_run:
        kept["load_average"] = of_run["load_average"]
    parameters = raw.get("parameters", {})
    kept["parameters"] = {key: parameters[key] for key in PARAMETERS if parameters.get(key) is not None}
    machine.pop("parameters", None)  # of a simulated machine: they stand in its file
    # Each run has its own host, and the workload has another place there.
    machine["kernel"] = machine["kernel"].split("-")[0] if "kernel" in machine else None
    machine = {key: value for key, value in machine.items() if value is not None}
    for name in ("warnings", "unavailable", "seeds", "counting", "error_median_pct", "error_max_pct", "unsteady"):
        if raw.get(name):
            kept[name] = raw[name]
    if "counting" in kept:
        kept["counting"] = numbers(kept["counting"])
    kept["results"] = [result(each) for each in results]
    return kind, machine, kept


def command(words, path):
    """As it was typed, without the files it wrote."""
    if words is None:
        listed = path.with_name("commands.txt")
        words = shlex.split(listed.read_text().splitlines()[0]) if listed.exists() else []
    words, kept = list(words), []
    while words:
        word = words.pop(0)
        if word in ("--json", "--markdown", "--plot"):
            words.pop(0)
        elif word != "--quiet":
            kept.append(word)
    return shlex.join(kept)


def base(folder):
    name = folder.name
    for part in PARTS:
        name = name.removesuffix(part)
    if not re.fullmatch(r"\d{4}-\d\d-\d\d-.+", name):
        fail(f"{folder}: a name like 2026-11-25-amd-epyc is wanted")
    return name


def write(path, summary):
    """JSON with one line for each result, so that a difference between two summaries can be read."""
    head = {key: value for key, value in summary.items() if key != "runs"}
    lines = ["{"] + [f'"{key}": {json.dumps(value)},' for key, value in head.items()] + ['"runs": [']
    for at, each in enumerate(summary["runs"]):
        fields = [f'"{key}": {json.dumps(value)}' for key, value in each.items() if key != "results"]
        lines.append("{" + ",\n ".join(fields))
        lines[-1] += ',\n "results": ['
        lines.append(",\n".join("  " + json.dumps(line) for line in each["results"]))
        lines.append(" ]}" + ("," if at + 1 < len(summary["runs"]) else ""))
    path.write_text("\n".join(lines + ["]}"]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    root = Path(__file__).resolve().parent.parent
    parser.add_argument("--results", type=Path, default=root / "docs/results", help="where the summaries are")
    options = parser.parse_args()
    for folder in options.folders:
        paths = sorted(folder.glob("*.json"))
        if not paths:
            fail(f"{folder} has no JSON")
        into = options.results / f"{base(folder)}.json"
        summary = json.loads(into.read_text()) if into.exists() else {"runs": []}
        for path in paths:
            kind, machine, kept = run(path)
            kind = "measured" if kind == "validated" else kind
            if summary.setdefault("kind", kind) != kind or summary.setdefault("machine", machine) != machine:
                fail(f"{path}: kind or machine is not that of {into}: {machine} {summary['machine']}")
            summary["runs"] = [each for each in summary["runs"] if each["name"] != kept["name"]] + [kept]
        write(into, {"kind": summary["kind"], "machine": summary["machine"], "runs": summary["runs"]})


if __name__ == "__main__":
    main()
