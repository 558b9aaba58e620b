#!/usr/bin/env python3
"""Runs and shows the checks of ci/steps.toml.

    ci/steps.py list [TIER [GROUP]]    the steps: name, seconds, command
    ci/steps.py groups TIER            the groups of a tier, as a JSON array
    ci/steps.py run TIER [GROUP]       runs steps in order; those of a change stop at a failure
    ci/steps.py table                  writes the table of CONTRIBUTING.md
    ci/steps.py check                  fails if that table, or a script in ci/, is not as in the list

KINLOCK_STEPS=FILE takes another list.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = pathlib.Path(os.environ.get("KINLOCK_STEPS", ROOT / "ci/steps.toml"))
GUIDE = ROOT / "CONTRIBUTING.md"
TABLE = re.compile(r"(<!-- table: ci/steps.py -->\n\n).*?\n(?=\n)", re.DOTALL)
TIERS = {"change": "`.ci/run`", "deep": "`ci/deep.sh`"}
SHELL = ["bash", "-euo", "pipefail", "-c"]
REQUIRED = {"name", "tier", "group", "run", "checks"}
OPTIONAL = {"seconds", "needs"}


def read():
    """The steps and the tools, or the end of this program if the list is wrong."""
    found = tomllib.loads(LIST.read_text())
    steps, wrong = found.get("step", []), []
    for step in steps:
        name = step.get("name", step)
        if not REQUIRED <= step.keys() <= REQUIRED | OPTIONAL:
            wrong.append(f"{name}: fields are {', '.join(sorted(step))}")
        elif step["tier"] not in TIERS:
            wrong.append(f"{name}: no tier is called {step['tier']}")
    names = [step.get("name") for step in steps]
    wrong += [f"{name}: twice" for name in sorted({n for n in names if names.count(n) > 1})]
    if wrong or not steps:
        sys.exit("\n".join(f"{LIST}: {line}" for line in wrong) or f"{LIST}: no steps")
    return steps, found.get("tool", [])


def chosen(steps, tier=None, group=None):
    found = [s for s in steps if tier in (None, s["tier"]) and group in (None, s["group"])]
    return found or sys.exit(f"{LIST}: no step has tier {tier} and group {group}")


def summary(done):
    """Where the time went. Recorded seconds are those of the list."""
    width = max(len(step["name"]) for step, _ in done)
    print(f"\n{'step':{width}}  seconds  recorded")
    for step, seconds in done:
        print(f"{step['name']:{width}}  {seconds:7.0f}  {step.get('seconds', '-'):>8}")
    print(f"{'all':{width}}  {sum(seconds for _, seconds in done):7.0f}", flush=True)


def run(steps):
    done, failed = [], []
    for step in steps:
        print(f"==== {step['name']}: {step['run']} ({time.strftime('%T')})", flush=True)
        start = time.monotonic()
        status = subprocess.run([*SHELL, step["run"]], cwd=ROOT, check=False).returncode
        done.append((step, time.monotonic() - start))
        if status != 0:
            by_hand = f"run by hand: {step['run']}"
            failed.append(f"==== FAILED: {step['name']} (status {status}); {by_hand}")
            if step["tier"] == "change":
                break
    summary(done)
    if failed:
        sys.exit("\n".join(failed))
    print(f"==== all {len(done)} steps passed ({time.strftime('%T')})")


def table(steps, tools):
    rows = [
        f"| `{s['run']}` | {TIERS[s['tier']]} | {s['checks']} | {s.get('needs', '')} |"
        for s in steps
    ]
    lines = ["| command | run by | checks | needs |", "| --- | --- | --- | --- |", *rows]
    lines += [f"| `{t['run']}` | by hand | no check: {t['does']} | |" for t in tools]
    return "\n".join(lines) + "\n"


def check(steps, tools):
    wrong = []
    wanted, tables = with_table(steps, tools)
    if tables != 1 or wanted != GUIDE.read_text():
        wrong.append(f"{GUIDE.name}: the table is not what `ci/steps.py table` writes")
    first = chosen(steps, "change")[0]["run"]
    if first not in (ROOT / "README.md").read_text():
        wrong.append(f"README.md does not have the first step, {first}")
    listed = " ".join(entry["run"] for entry in steps + tools).split()
    for script in sorted((ROOT / "ci").iterdir()):
        if os.access(script, os.X_OK) and script.is_file() and f"ci/{script.name}" not in listed:
            wrong.append(f"ci/{script.name} is neither a step nor a tool in {LIST.name}")
    if wrong:
        sys.exit("\n".join(wrong))


def with_table(steps, tools):
    """CONTRIBUTING.md as it should be, and how many places it has for the table."""
    return TABLE.subn(lambda found: found[1] + table(steps, tools), GUIDE.read_text())


def main():
    verb, arguments = sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]
    steps, tools = read()
    if verb == "list" and len(arguments) <= 2:
        for step in chosen(steps, *arguments):
            print(f"{step['name']:18} {step.get('seconds', '-'):>5}  {step['run']}")
    elif verb == "groups" and len(arguments) == 1:
        print(json.dumps(list(dict.fromkeys(s["group"] for s in chosen(steps, *arguments)))))
    elif verb == "run" and 1 <= len(arguments) <= 2:
        run(chosen(steps, *arguments))
    elif verb == "table" and not arguments:
        GUIDE.write_text(with_table(steps, tools)[0])
    elif verb == "check" and not arguments:
        check(steps, tools)
    else:
        sys.exit(__doc__)


main()
