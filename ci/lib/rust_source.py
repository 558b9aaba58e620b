"""Reads Rust sources for the checks in ci/: what is a comment, what is a test, where bodies end."""

import pathlib
import re

CODE, COMMENT, TEXT = " ", "c", "s"
TOKEN = re.compile(
    r"""//[^\n]*"""
    r"""|/\*"""
    r"""|\b(?:b|c)?r(\#*)"(?:.*?)"\1"""
    r"""|(?:\b[bc])?"(?:[^"\\]|\\.)*\""""
    r"""|b?'(?:[^'\\\n]|\\[^\n][^'\n]*)'""",
    re.S,
)


def kinds(text):
    """For each character whether it is code, comment or the inside of a literal."""
    kind = [CODE] * len(text)
    at = 0
    while match := TOKEN.search(text, at):
        start, end = match.span()
        if text.startswith("/*", start):
            end, depth = start + 2, 1
            while depth and end < len(text):
                if text.startswith("/*", end):
                    depth, end = depth + 1, end + 2
                elif text.startswith("*/", end):
                    depth, end = depth - 1, end + 2
                else:
                    end += 1
        what = COMMENT if text[start] == "/" else TEXT
        kind[start:end] = [what] * (end - start)
        at = end
    return kind


def code_only(text):
    """The text with comments and literals blanked; lines and offsets stay."""
    pairs = zip(text, kinds(text))
    return "".join(char if kind == CODE or char == "\n" else " " for char, kind in pairs)


def closing(code, opening):
    """The offset behind the bracket that closes the one at `opening`."""
    opens, closes = code[opening], {"{": "}", "(": ")", "[": "]"}[code[opening]]
    depth = 0
    for at in range(opening, len(code)):
        if code[at] == opens:
            depth += 1
        elif code[at] == closes:
            depth -= 1
            if depth == 0:
                return at + 1
    return len(code)


def body_of(code, start):
    """The span of the first `{...}` outside other brackets after `start`; None if a `;` comes first."""
    at = start
    while at < len(code):
        char = code[at]
        if char == ";":
            return None
        if char == "{":
            return at, closing(code, at)
        at = closing(code, at) if char in "([" else at + 1
    return None


def test_items(code):
    """Spans of items that only tests have, and names of `mod NAME;` among them."""
    spans, modules = [], []
    for match in re.finditer(r"#\[\s*(cfg\s*\(|test\s*\])", code):
        end = closing(code, match.start() + 1)
        attribute = code[match.start() : end]
        without = re.sub(r"not\s*\(\s*test\s*\)", "", attribute)
        if not re.search(r"\btest\b", without):
            continue
        body = body_of(code, end)
        if body:
            spans.append((match.start(), body[1]))
            continue
        stop = code.find(";", end)
        spans.append((match.start(), stop + 1))
        declared = re.search(r"\bmod\s+(\w+)\s*$", code[end:stop])
        if declared:
            modules.append(declared.group(1))
    for match in re.finditer(r"\bmod\s+tests\s*(\{|;)", code):
        if match.group(1) == "{":
            spans.append((match.start(), closing(code, match.end() - 1)))
    return spans, modules


def without_tests(code):
    """The code with items that only tests have blanked."""
    for start, end in test_items(code)[0]:
        code = code[:start] + re.sub(r"[^\n]", " ", code[start:end]) + code[end:]
    return code


def children(path):
    """The folder in which the modules declared in `path` live."""
    named = path.name in ("lib.rs", "main.rs", "mod.rs")
    return path.parent if named else path.parent / path.stem


def test_files(files):
    """Those of `files` that only tests have."""
    found = set()
    for path in files:
        parts = path.parts
        if "tests" in parts or "benches" in parts or path.name == "tests.rs":
            found.add(path)
        for module in test_items(code_only(path.read_text()))[1]:
            folder = children(path)
            found.add(folder / f"{module}.rs")
            found.update(p for p in files if (folder / module) in p.parents)
    return found


def rust_files(*roots):
    """All Rust files under `roots`, the project's buildings if none is given, but build outputs."""
    roots = roots or ("lib", "tools", "lab")
    paths = sorted(path for root in roots for path in pathlib.Path(root).glob("**/*.rs"))
    return [path for path in paths if "target" not in path.parts]


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1
