#!/usr/bin/env python3
"""Links within the documents lead somewhere: the file is there, and has the heading."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^][]*(?:\[[^][]*\][^][]*)*\]\(([^()\s]+)\)")


def plain(text):
    """The lines of a document without blocks of code."""
    return re.sub(r"^( *)```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(path):
    """What a reader's site makes of the headings: lower case, hyphens for spaces, no signs."""
    found = {}
    names = set()
    for heading in re.findall(r"^#+ +(.*?) *$", plain(path.read_text()), flags=re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = found[name] = found.get(name, -1) + 1
        names.add(name if count == 0 else f"{name}-{count}")
    return names


def main():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout
    known, wrong, count = {}, [], 0
    for name in listed.split():
        document = ROOT / name
        if not document.exists() or document.is_symlink():
            continue
        for target in LINK.findall(plain(document.read_text())):
            if re.match(r"[a-z]+:", target):
                continue
            count += 1
            path, _, anchor = target.partition("#")
            file = (document.parent / path).resolve() if path else document
            if not file.exists():
                wrong.append(f"{name}: {target}: there is no such file")
            elif anchor and file.suffix == ".md":
                if anchor not in known.setdefault(file, anchors(file)):
                    wrong.append(f"{name}: {target}: there is no such heading")
    if wrong or not count:
        sys.exit("\n".join(wrong) or "links.py: no links found")
    print(f"{count} links")


main()
