"""Links and paths in pages: each leads to a file or a heading that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_PATH: Final = re.compile(r"`((?:tests|service|docs|deploy)/[\w/.-]+\.\w+)`")
"""A file of the repository in a code span. `NAME` in it stands for any name."""
_FENCE: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_ANCHOR: Final = re.compile(r'<a (?:id|name)="([^"]+)"')


def pages(root: Path) -> list[Path]:
    """Return the pages of the repository."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / ".github").rglob("*.md")])


def broken(root: Path) -> Iterator[str]:
    """Yield each relative link, and each path in a code span, whose file or heading does not exist."""
    for page in pages(root):
        text = _FENCE.sub("", page.read_text())
        for path in _PATH.findall(text):
            if "NAME" not in path and not (root / path).exists():
                yield f"{page.relative_to(root)}: {path}"
        for match in _LINK.finditer(text):
            target = match[1] or match[2]
            if "://" in target or target.startswith("mailto:"):
                continue
            file, _, anchor = target.partition("#")
            other = (page.parent / file).resolve() if file else page
            where = f"{page.relative_to(root)}: {target}"
            if not other.exists() or (anchor and other.suffix == ".md" and anchor not in anchors(other)):
                yield where


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them of headings."""
    text = _FENCE.sub("", page.read_text())
    found: set[str] = set(_ANCHOR.findall(text))
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (name := anchor if not number else f"{anchor}-{number}") in found:
            number += 1
        found.add(name)
    return found
