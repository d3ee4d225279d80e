"""Find private words: in identifiers, docstrings, comments and messages of the package, and in its pages.

`docs/glossary.md` lists the terms that replace them. A word is banned where a newcomer has to guess its meaning, or
where it makes a sentence that has to be read twice.
"""

import ast
import gc
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

WORDS: Final = (
    "nobody",
    "whoever",
    "anew",
    "told",
    "tell",
    "tells",
    "hear",
    "hears",
    "hearsay",
    "telling",
    "tellings",
    "wish",
    "wishes",
    "story",
    "stories",
    "heir",
    "heirs",
    "whose",
    "desk",
    "desks",
    "shelf",
    "shelves",
    "face",
    "faces",
    "faced",
    "custody",
    "standing",
)
PHRASES: Final = (
    r"so many",
    r"of which",
    r"be it",
    r"in earnest",
    r"by and by",
    r"be(?:en)? seen to",
    r"seen through",
    r"let go",
    r"gives? leave",
    r"looked at",
    r"(?:an?|the|one|each|every|this|that|no|first|second|next|last|new|our|its) looks?(?! like)",
    r"looks of",
    r"(?:operators?'|an operator's) orders?",
)
# In names a word stands alone, so that its sense can't be seen: these are banned there as well.
IN_NAMES: Final = (*WORDS, "kept", "look", "looks", "looked", "asof")

_PROSE: Final = re.compile(rf"\b(?:{'|'.join((*WORDS, *PHRASES))})\b", re.IGNORECASE)
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def syntax_tree(source: str) -> ast.Module:
    """Return the syntax tree of Python `source`.

    A garbage collection amid the work runs other code, and Python 3.11.7 raises SystemError if that parses source as
    well, as the print of a traceback does (python/cpython issue 106905).
    """
    gc.disable()
    try:
        return ast.parse(source)  # noqa: TID251 - safe without a collection
    finally:
        gc.enable()


def private_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each definition in Python `source` that has a banned word among its parts."""
    for node in ast.walk(syntax_tree(source)):
        for line, name in _defined(node):
            if any(part.lower() in IN_NAMES for part in _PARTS.findall(name)):
                yield line, name


def _defined(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.lineno, node.name
        case ast.arg():
            yield node.lineno, node.arg
        case ast.Name(ctx=ast.Store()):
            yield node.lineno, node.id
        case ast.Attribute(ctx=ast.Store()):
            yield node.lineno, node.attr
        case ast.alias(asname=str(name)):
            yield 0, name
        case _:
            return


def private_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each banned word or phrase in `text`."""
    joined = re.sub(r"\n(?=\S| )", " ", text)
    for match in _PROSE.finditer(joined):
        yield text.count("\n", 0, match.start()) + 1, match[0].lower()


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the comments and of the strings in Python `source`; f-strings in pieces."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(syntax_tree(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def counted(root: Path) -> dict[str, Counter[str]]:
    """Return, by file below `root`, how often each banned word stands in it."""
    found: dict[str, Counter[str]] = {}
    for path in sorted((root / "service").rglob("*.py")):
        source = path.read_text()
        words = Counter(f"name {name}" for _, name in private_names(source))
        words.update(word for line, text in prose_of(source) for _, word in private_prose(text))
        if words:
            found[str(path.relative_to(root))] = words
    for path in [*sorted((root / "docs").rglob("*.md")), root / "README.md"]:
        if words := Counter(word for _, word in private_prose(path.read_text())):
            found[str(path.relative_to(root))] = words
    return found


ALLOWED: Final[dict[str, Counter[str]]] = {}
"""By file, the banned words that remain, and how often: columns of the inbox's tables. The list only shrinks."""
