"""Tables called by their directories: namespace `dir`, as in ``SELECT … FROM sfn.dir.`/warehouse/sales/orders` ``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfn.errors import LocationRefused, Unsafe
from sfn.facade import Namespace, TablePlace
from sfn.reader.blocking import parse_identifier
from sfn.reader.files import FileReader
from sfn.reader.resolve import Question
from sfn.sfnfile.locations import check_any_scheme, longest_prefix

DIRECTORY_NAMESPACE: Final[Namespace] = ("dir",)
MAX_DIRECTORY_NAME: Final = 4_096
"""Characters of a directory's name: what is looked at is remembered for a while, and no path is longer."""


def is_directory(namespace: Namespace, name: str) -> bool:
    """Whether a table's name is a path or a URL."""
    return namespace == DIRECTORY_NAMESPACE and (name.startswith("/") or ":/" in name)


def place_of_directory(name: str, trees: Mapping[str, FileReader]) -> TablePlace:
    """Where the table of a directory is looked up.

    Args:
        name: a path or URL; of a directory that several tables share, with `#` and the table's identifier behind it.
        trees: by their roots, the canonical prefixes of the allow-list.

    Raises:
        Unsafe: it lies below none of them, or its path does not lead where it seems to.
    """
    if len(name) > MAX_DIRECTORY_NAME:
        raise Unsafe(
            f"{name[:64]!r}…",
            expected=f"a directory of at most {MAX_DIRECTORY_NAME:,} characters",
            found="a longer one",
        )
    directory, _, table = name.partition("#")
    try:
        url = check_any_scheme(directory.rstrip("/") or "/")
    except LocationRefused as refused:
        raise Unsafe(f"{name!r}", expected=refused.expected, found=refused.found) from None
    root = longest_prefix(url, trees)
    if root is None:
        remedy = "read another one, or have the facade started with a root that covers it"
        raise Unsafe(
            f"{name!r}", expected=f"a directory below {' or '.join(sorted(trees))}", found="one outside", remedy=remedy
        )
    try:
        identifier = parse_identifier(table) if table else None
    except ValueError as error:
        raise Unsafe(f"{name!r}", expected=f"{error}", found="another") from None
    return TablePlace(trees[root], Question(url, identifier, allowed=(root,)))
