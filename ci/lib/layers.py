"""See ci/layers.sh."""

import graphlib
import pathlib
import re
import sys
import tomllib

BUILDINGS = ["lib", "tools", "lab"]
TESTS = re.compile(r"^\s*#\[cfg\(.*\btest\b.*\)\]\s*(?:#\[.*\]\s*)*mod \w+ \{", re.MULTILINE)
IMPORT = re.compile(r"\b(?:pub(?:\([^)]*\))? )?use (?:crate::|self::)?(\w+)([^;]*);")
ITEM = re.compile(
    r"^(?:pub(?:\([^)]*\))? )?(?:unsafe |const |async )*"
    r"(?:fn|struct|enum|trait|const|static|type|union) (\w+)",
    re.MULTILINE,
)
bad = []


def crates():
    """By name of a crate: its building and its folder. Arrows that run up are noted."""
    found = {}
    for path in sorted(pathlib.Path().glob("*/*/Cargo.toml")):
        if path.parts[0] in BUILDINGS:
            manifest = tomllib.loads(path.read_text())
            found[manifest["package"]["name"]] = (BUILDINGS.index(path.parts[0]), path, manifest)
    for name, (building, path, manifest) in found.items():
        for table in [manifest, *manifest.get("target", {}).values()]:
            for key, value in table.get("dependencies", {}).items():
                target = value.get("package", key) if isinstance(value, dict) else key
                ours = isinstance(value, dict) and ("workspace" in value or "path" in value)
                if ours and target in found and found[target][0] > building:
                    bad.append(f"{path}: {name} uses {target}, which is in a building above it")
    return {name: path.parent for name, (_, path, _) in found.items()}


def code(path):
    """The file without comments, and without the tests at its end."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    tests = TESTS.search(text)
    return text[: tests.start()] if tests else text


def names(text, at):
    """The first names of the path or of the group of paths at `at`."""
    depth, first = 1, "" if text[at] == "{" else re.match(r"\w+", text[at:]).group()
    for char in text[at + 1 :] if not first else "":
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth == 0:
            break
        first += char if depth == 1 else ""
    return [re.match(r"\w*", part.strip()).group() for part in first.split(",")]


def modules(name, folder):
    """Prints the top-level modules of a crate, lowest first. Notes circles at any depth."""
    src = folder / "src"
    files = {path: path.relative_to(src).with_suffix("").parts for path in src.rglob("*.rs")}
    files = {path: parts for path, parts in files.items() if not {"tests", "bin"} & set(parts)}
    files = {path: () if parts[-1] in ("lib", "main") else parts for path, parts in files.items()}
    files = {p: parts[:-1] if parts[-1:] == ("mod",) else parts for p, parts in files.items()}
    parents = {parts[:-1] for parts in files.values() if parts}
    for parent in sorted(parents):
        siblings(name, parent, files)


def siblings(name, parent, files):
    """Notes a circle of the modules whose parent this is."""
    n = len(parent)
    inside = {path: parts for path, parts in files.items() if parts[:n] == parent and parts[n:]}
    tops = {parts[n] for parts in inside.values()}
    # What the parent has of its children: a child may name it as the parent's own.
    imported = {}
    for root in (path for path, parts in files.items() if parts == parent):
        for use in IMPORT.finditer(code(root)):
            words = re.findall(r"\w+", use[2])
            if use[2].endswith("*"):
                whole = [path for path, parts in inside.items() if parts[n:] == (use[1],)]
                words += [word for path in whole for word in ITEM.findall(code(path))]
            if use[1] in tops:
                imported.update((word, use[1]) for word in words)
    arrows = {top: {} for top in sorted(tops)}
    for path, parts in sorted(inside.items()):
        text = code(path)
        absolute = "::".join(["crate", *parent]) + "::"
        relative = r"(?<!super::)" + "super::" * (len(parts) - n)
        way = rf"\b(?:{absolute}|{relative})(?!super\b)"
        used = set()
        for match in re.finditer(rf"{way}(?=[\w{{])", text):
            used.update(names(text, match.end()))
        if re.search(rf"{way}\*", text):
            used.update(imported.keys() & set(re.findall(r"\w+", text)))
        for found in sorted(used):
            target = imported.get(found, found)
            if target in tops - {parts[n]}:
                arrows[parts[n]].setdefault(target, path)
    try:
        order = list(graphlib.TopologicalSorter(arrows).static_order())
        for top in order if not parent else []:
            uses = f" uses {', '.join(sorted(arrows[top]))}" if arrows[top] else ""
            print(f"{name}: {top}{uses}")
    except graphlib.CycleError as circle:
        way = circle.args[1][::-1]
        module = "::".join([name, *parent])
        bad.append(f"{module}: a circle of modules, {' -> '.join(way)}")
        bad.extend(f"    {a} -> {b}: {arrows[a][b]}" for a, b in zip(way, way[1:]))


def algorithms(folder):
    """Notes what the algorithms name that neither the model checker nor the simulator would see."""
    raw = [*(folder / "src").glob("raw.rs"), *(folder / "src").glob("raw/**/*.rs")]
    for path in (path for path in raw if not {"tests", "tests.rs"} & set(path.parts)):
        for name in re.findall(r"\b(?:std|core::sync|libc)\b(?=::)", code(path)):
            bad.append(f"{path}: an algorithm names {name}; it should ask its platform")


for crate, folder in crates().items():
    modules(crate, folder)
    algorithms(folder)
sys.exit("\n".join(bad) or 0)
