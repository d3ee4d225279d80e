"""What SFN files are called: each naming is one frozen row (specification, section 3).

A file's name is an owner, `_`, a part and the extension. The owner says whose it is, by identifier or by table uuid;
the part says which of the owner's files it is: a ref, `head`, or the Ordinal of one commit. No ref spells either of the
last two, so a name alone tells what a file is for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from sfn.pointer.document import parse_ordinal, render_ordinal

EXTENSION: Final = ".ver"
MAIN: Final = "main"
"""The branch that every table has."""
HEAD: Final = "head"
"""The part of the file that names the newest of a table's commits, where each has a file."""

_ESCAPED = re.compile(rb"[^A-Za-z0-9_-]")
_ORDINAL = re.compile(r"\d{8}T\d{6}(?:\d{3})?", re.ASCII)
_ESCAPE_BEGUN = re.compile(r"%[0-9A-F]?$")
_LONGEST = 200
_KEPT = 100
_LONGEST_REF = 100
_REF_KEPT = 60


@dataclass(frozen=True, slots=True)
class Whose:
    """What a file name may tell of a table.

    Attributes:
        namespace: levels, outermost first; may be empty.
        name: the table's own name.
        guid: its uuid; None where it has none, or where it is not known.
    """

    namespace: tuple[str, ...]
    name: str
    guid: str | None = None


@dataclass(frozen=True, slots=True)
class Naming:
    """One way to call files.

    Attributes:
        word: what the settings call it.
        owner: of a table, and whether `_` inside its parts is `%5F`: how its files' names begin; None where the table
            has nothing to be called by.
        lead: the part of the file that is written first and orders all others: `MAIN` or `HEAD`.
        has_refs: each branch that is published has a file.
        has_commits: each commit has a file.
        is_by_guid: tables that had one identifier after another have files beside each other, and a table keeps its
            files when it is renamed.
    """

    word: str
    owner: Callable[[Whose, bool], str | None]
    lead: str
    has_refs: bool
    has_commits: bool
    is_by_guid: bool

    def names(self, whose: Whose, ref: str | None = None) -> tuple[str, ...]:
        """The name of a table's leading file, or of a branch's: the plain one and, where it differs, the strict one.

        Empty for a table that this naming can't name: one without a uuid that is to be called by it.
        """
        both = [(self.owner(whose, strict), self._part(ref, strict=strict)) for strict in (False, True)]
        return tuple(dict.fromkeys(_joined(owner, part) for owner, part in both if owner is not None))

    def commit_names(self, whose: Whose, ordinal: int) -> tuple[str, ...]:
        """As `names`, of the file of one commit.

        Args:
            ordinal: Unix milliseconds.
        """
        owners = dict.fromkeys(self.owner(whose, strict) for strict in (False, True))
        return tuple(_joined(owner, render_ordinal(ordinal)) for owner in owners if owner is not None)

    def begins(self, whose: Whose) -> tuple[str, ...]:
        """How the names of all files of an identifier begin; "" where its tables may have had any uuid."""
        if self.is_by_guid:
            return ("",)
        owners = [self.owner(whose, strict) for strict in (False, True)]
        # Of a longer one so much is left at least, whatever the part behind it.
        return tuple(dict.fromkeys(_uncut(owner) for owner in owners if owner is not None))

    def _part(self, ref: str | None, *, strict: bool) -> str:
        return self.lead if ref is None else _ref(ref, strict=strict)


def _by_identifier(whose: Whose, strict: bool) -> str:  # noqa: FBT001 - a row's function
    levels = [".".join(_encoded(level, strict=strict) for level in whose.namespace)] if whose.namespace else []
    return "_".join([*levels, _encoded(whose.name, strict=strict)])


def _by_guid(whose: Whose, _strict: bool) -> str | None:  # noqa: FBT001 - a row's function
    return _encoded(whose.guid, strict=True) if whose.guid else None


IDENTIFIER: Final = Naming("identifier", _by_identifier, MAIN, has_refs=True, has_commits=False, is_by_guid=False)
ORDINAL: Final = Naming("ordinal", _by_identifier, HEAD, has_refs=False, has_commits=True, is_by_guid=False)
UUID: Final = Naming("uuid", _by_guid, MAIN, has_refs=True, has_commits=False, is_by_guid=True)

NAMINGS: Final[Mapping[str, Naming]] = MappingProxyType({row.word: row for row in (IDENTIFIER, ORDINAL, UUID)})


@lru_cache(8192)
def commit_of(file_name: str) -> int | None:
    """The Ordinal of the commit that a file is for, in Unix milliseconds; None for every other file."""
    part = file_name.removesuffix(EXTENSION).rpartition("_")[2]
    if part == file_name or not _ORDINAL.fullmatch(part):
        return None
    try:
        return parse_ordinal(part)
    except ValueError:
        return None


def owner_of(file_name: str) -> str:
    """How the names of all files begin that have the same owner, in the same spelling."""
    return file_name.rpartition("_")[0]


def dotted(namespace: Sequence[str], name: str) -> str:
    """The identifier as one unambiguous text: encoded levels and name, joined by dots."""
    return ".".join(_encoded(part, strict=False) for part in (*namespace, name))


def folders(namespace: Sequence[str], name: str) -> str:
    """The folders of a table below a root of their own: its namespace, if it has one, and its name."""
    levels = [".".join(_encoded(level, strict=False) for level in namespace)] if namespace else []
    return "/".join(_shortened(part) for part in [*levels, _encoded(name, strict=False)])


@lru_cache(4096)
def _encoded(text: str, *, strict: bool) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    encoded = _ESCAPED.sub(lambda byte: b"%%%02X" % ord(byte[0]), raw).decode("ascii")
    return encoded.replace("_", "%5F") if strict else encoded


def _ref(ref: str, *, strict: bool) -> str:
    """A ref as a part; what would be taken for a head's or a commit's has a character encoded that needs it not."""
    encoded = _encoded(ref, strict=strict)
    if len(encoded) > _LONGEST_REF:
        return _cut(encoded, _REF_KEPT)
    start, separator, last = encoded.rpartition("_")
    if last == HEAD or _ORDINAL.fullmatch(last):
        return f"{start}{separator}%{ord(last[0]):02X}{last[1:]}"
    return encoded


def _joined(owner: str, part: str) -> str:
    whole = f"{owner}_{part}"
    if len(whole) > _LONGEST:
        # A plain ref may hold a `_`: what is before the last one is the owner then.
        owner, _, part = whole.rpartition("_")
        whole = f"{_cut(owner, _KEPT)}_{part}"
    return whole + EXTENSION


def _uncut(owner: str) -> str:
    return f"{owner}_" if len(owner) < _KEPT else _ESCAPE_BEGUN.sub("", owner[:_KEPT])


def _shortened(folder: str) -> str:
    return folder if len(folder) <= _LONGEST else _cut(folder, _KEPT)


def _cut(text: str, most: int) -> str:
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()[:32]
    kept = _ESCAPE_BEGUN.sub("", text[:most])
    return f"{kept}~{digest}"
