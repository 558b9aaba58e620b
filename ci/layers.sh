#!/usr/bin/env bash
# The arrows (what uses what) between crates, and between the top-level modules of each crate. Modules
# are printed lowest first. Fails on a circle, and on an arrow between crates that does not run down.
#
# Arrows are read from [dependencies] in Cargo.toml, and `crate::` and `super::` in src/. Left out: comments, tests,
# and what a crate's root only re-exports. The root counts as a module, called (root), if it has code.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "${KINLOCK_ROOT:-$here/..}"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/lib exec python3 - <<'EOF'
import pathlib
import re
import sys
import tomllib

import rust_source as rust

# Lowest first. Crates in one row do not know each other.
ORDER = [
    ["kinlock-core", "kinlock-report"],
    ["kinlock-linux"],
    ["kinlock"],
    ["kinlock-ids", "kinlock-invalidation", "kinlock-preload", "parking_lot", "parking_lot_core"],
    ["kinlock-measure"],
    ["kinlock-cli", "kinlock-sim"],
    ["kinlock-verify"],
    ["kinlock-lab"],
]
ROOT = "(root)"
bad = []


def circles(arrows):
    """Nodes in groups, lowest first; a group of several is a circle (Tarjan)."""
    index, low, stack, groups = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(arrows[node]):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            groups.append(sorted(stack[stack.index(node) :]))
            del stack[stack.index(node) :]

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return groups


def shortest_circle(arrows, group):
    """The shortest way round within `group`."""
    best = None
    for start in group:
        ways = [[start]]
        seen = set()
        while ways and not (best and len(ways[0]) >= len(best)):
            way = ways.pop(0)
            for target in sorted(set(arrows[way[-1]]) & set(group)):
                if target == start:
                    best = way + [start]
                    ways = []
                    break
                if target not in seen:
                    seen.add(target)
                    ways.append(way + [target])
    return best


def show(name, arrows):
    """Prints the arrows lowest first, and notes circles."""
    print(f"{name}:")
    for group in circles(arrows):
        for node in group:
            print(f"    {node}" + "".join(f" -> {t}" if i == 0 else f", {t}"
                                          for i, t in enumerate(sorted(arrows[node]))))
        if len(group) > 1:
            way = shortest_circle(arrows, group)
            bad.append(f"{name}: a circle of {len(group)}: {', '.join(group)}; the shortest way round:")
            bad.extend(f"    {a} -> {b}: {arrows[a][b]}" for a, b in zip(way, way[1:]))


def manifests():
    found = {}
    for path in sorted(path for root in ("lib", "tools", "lab") for path in pathlib.Path(root).glob("*/Cargo.toml")):
        manifest = tomllib.loads(path.read_text())
        found[manifest["package"]["name"]] = (path, manifest)
    return found


def crates(found):
    rank = {name: row for row, names in enumerate(ORDER) for name in names}
    arrows = {name: {} for name in found}
    for name, (path, manifest) in found.items():
        if name not in rank:
            bad.append(f"{path}: {name} has no place in the list in ci/layers.sh")
        tables = [manifest, *manifest.get("target", {}).values()]
        for key, value in [pair for t in tables for pair in t.get("dependencies", {}).items()]:
            target = value.get("package", key) if isinstance(value, dict) else key
            if target not in found:
                continue
            arrows[name][target] = str(path)
            if rank.get(target, -1) >= rank.get(name, len(ORDER)):
                bad.append(f"{path}: {name} -> {target} does not run down")
    show("crates", arrows)


def module_of(path, src):
    """The path of modules that a file is."""
    parts = list(path.relative_to(src).with_suffix("").parts)
    return parts[:-1] if parts[-1] in ("lib", "main", "mod") else parts


def inline_modules(code):
    """Spans of `mod NAME { }`."""
    for match in re.finditer(r"\bmod\s+(\w+)\s*\{", code):
        yield match.end(), rust.closing(code, match.end() - 1), match.group(1)


def names_in(code, at):
    """The first names of what stands at `at`: `a::b`, or a group `{a::b, c}`."""
    rest = re.match(r"\s*(r#)?(\w+)", code[at:])
    if rest:
        yield rest.group(2), at
    group = re.match(r"\s*\{", code[at:])
    if group:
        opening = at + group.end() - 1
        depth, start = 0, opening + 1
        for i in range(opening, rust.closing(code, opening)):
            depth += {"{": 1, "}": -1}.get(code[i], 0)
            if code[i] in ",}" and depth <= 1:
                inner = re.match(r"\s*(\w+)", code[start:i])
                if inner:
                    yield inner.group(1), start
                start = i + 1


def uses(code, modules):
    """Names in the crate's root that code in a file of the module `modules` uses, with offsets."""
    inline = list(inline_modules(code))
    for match in re.finditer(r"\bcrate\s*::\s*|\b(?:super\s*::\s*)+", code):
        if re.search(r"pub\s*\(\s*in\s*$", code[: match.start()][-20:]):
            continue
        depth = len(modules) + sum(start <= match.start() < end for start, end, _ in inline)
        if "crate" in match.group() or match.group().count("super") == depth:
            yield from names_in(code, match.end())


def root_names(code):
    """What the root re-exports, from which module, and the root without that."""
    found = {}
    for match in re.finditer(r"\bpub(?:\s*\([^)]*\))?\s+use\s+(?:crate::|self::)?(\w+)([^;]*);", code):
        for name in re.findall(r"\w+", match.group(2)):
            found.setdefault(name, match.group(1))
    return found, re.sub(r"\bpub(?:\s*\([^)]*\))?\s+use\s+[^;]*;", lambda m: " " * len(m.group()), code)


def modules(name, folder):
    src = folder / "src"
    files = [path for path in rust.rust_files(src) if path.relative_to(src).parts[0] != "bin"]
    tests = rust.test_files(files)
    sources = {p: rust.without_tests(rust.code_only(p.read_text())) for p in files if p not in tests}
    tops = {module_of(path, src)[0] for path in sources if module_of(path, src)}
    roots = [path for path in sources if not module_of(path, src)]
    exported, macros = {}, {}
    for path in roots:
        names, sources[path] = root_names(sources[path])
        exported.update(names)
        tops.update(module for _, _, module in inline_modules(sources[path]))
    for path, code in sources.items():
        for macro in re.findall(r"\bmacro_rules!\s*(\w+)", code):
            macros[macro] = (module_of(path, src) or [ROOT])[0]
    arrows = {top: {} for top in tops}

    def arrow(source, found, path, at):
        target = found if found in tops else exported.get(found, macros.get(found, ROOT))
        target = target if target in tops else ROOT
        if target != source:
            place = f"{path}:{rust.line_of(sources[path], at)}"
            arrows.setdefault(source, {}).setdefault(target, place)
            arrows.setdefault(target, {})

    for path, code in sources.items():
        own = module_of(path, src)
        if own:
            for found, at in uses(code, own):
                arrow(own[0], found, path, at)
            continue
        for match in re.finditer(r"(?<![\w:])(?:crate::|self::)?(\w+)::", code):
            if match.group(1) in tops:
                inside = [n for start, end, n in inline_modules(code) if start <= match.start() < end]
                arrow(inside[0] if inside else ROOT, match.group(1), path, match.start())
    show(name, arrows)


found = manifests()
crates(found)
for name, (path, _) in found.items():
    modules(name, path.parent)
sys.stdout.flush()
if bad:
    print(*bad, sep="\n", file=sys.stderr)
    sys.exit(1)
EOF
