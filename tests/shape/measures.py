"""What can be measured of the tree without running it, each with its limit, and links in pages that lead nowhere."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tests.shape import wording
from tests.shape.event import modules_of_an_event

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "service" / "sfn"
BACKENDS: Final = (PACKAGE / "inbox" / "sqlite", PACKAGE / "inbox" / "postgres", PACKAGE / "inbox" / "memory")
"""Packages whose names and sizes the redesign of the inbox decides."""
SHOWN: Final = 20

_SEE: Final = re.compile(r"(?:See|As) (?:`[^`]+`|[^.`]+)[.;]?")

_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_PATH: Final = re.compile(r"`((?:tests|service|docs|deploy)/[\w/.-]+\.\w+)`")
"""A file of the repository in a code span. `NAME` in it stands for any name."""
_FENCE: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_ANCHOR: Final = re.compile(r'<a (?:id|name)="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of the tree.

    Attributes:
        name: what is counted.
        value: the figure.
        low: the least that it may be.
        high: the most that it may be; it is lowered with the figure, and never raised.
        examples: what makes it too large.
        goal: the most that it should be one day, where that is less.
    """

    name: str
    value: float
    low: float
    high: float
    examples: tuple[str, ...] = ()
    goal: float | None = None

    @property
    def fits(self) -> bool:
        """Whether the figure is within its limits."""
        return self.low <= self.value <= self.high


def measured() -> list[Measure]:
    """Return every figure of the tree."""
    sizes = {path: _lines(path) for path in _modules()}
    without = [lines for path, lines in sizes.items() if not _is_backend(path) and not _is_docstring_alone(path)]
    longest = max(sizes, key=lambda path: sizes[path])
    tests = list((ROOT / "tests").rglob("*.py"))
    return [
        Measure("modules in service/sfn", len(sizes), 0, 248),
        Measure("lines of the median module, without the inbox's backends", median(without), 150, 300),
        Measure("lines of the longest module", sizes[longest], 0, 900, (str(longest.relative_to(PACKAGE)),)),
        Measure("lines in service/sfn", sum(sizes.values()), 0, 72_700, goal=54_000),
        _counted("class names defined more than once", _repeated_classes()),
        _counted("banned words", _banned()),
        _counted("docstrings that only refer to another", _references()),
        _counted("links in pages that lead nowhere", broken_links(ROOT)),
        Measure("modules that one event passes through", len(modules_of_an_event()), 0, 54, goal=40),
        Measure("test files", len(tests), 0, 486),
        Measure("lines of tests", sum(map(_lines, tests)), 0, 117_700, goal=82_000),
        Measure("bytes of README.md", (ROOT / "README.md").stat().st_size, 0, 12_288),
    ]


def is_reference(docstring: str) -> bool:
    """Return whether a docstring says nothing but where another one stands."""
    return _SEE.fullmatch(docstring.strip()) is not None


def _counted(name: str, found: Iterator[str]) -> Measure:
    examples = list(found)
    return Measure(name, len(examples), 0, 0, tuple(examples[:SHOWN]))


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _is_backend(path: Path) -> bool:
    return any(path.is_relative_to(backend) for backend in BACKENDS)


def _is_docstring_alone(path: Path) -> bool:
    """Return whether a module is a package's docstring: nobody looks for code there."""
    return path.name == "__init__.py" and all(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for node in wording.syntax_tree(path.read_text()).body
    )


def _repeated_classes() -> Iterator[str]:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in _modules():
        if _is_backend(path):
            continue
        for node in ast.walk(wording.syntax_tree(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path.relative_to(PACKAGE)))
    return (f"{name}: {', '.join(files)}" for name, files in sorted(homes.items()) if len(files) > 1)


def _banned() -> Iterator[str]:
    for file, words in wording.counted(ROOT).items():
        for word, times in (words - wording.ALLOWED.get(file, Counter())).items():
            for _ in range(times):
                yield f"{file}: {word}"


def _references() -> Iterator[str]:
    for path in _modules():
        for node in ast.walk(wording.syntax_tree(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                said = ast.get_docstring(node)
                if said is not None and is_reference(said):
                    yield f"{path.relative_to(PACKAGE)}: {node.name}: {said}"


def prose_pages(root: Path) -> list[Path]:
    """Return the pages of the repository."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / ".github").rglob("*.md")])


def broken_links(root: Path) -> Iterator[str]:
    """Yield each relative link, and each path in a code span, whose file or heading does not exist."""
    for page in prose_pages(root):
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
