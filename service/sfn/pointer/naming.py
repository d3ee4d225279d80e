"""What SFN files are called under `identifier` naming, and where they lie (specification, sections 2 and 3)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache

_STANDS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_ORDINAL = re.compile(r"\d{8}T\d{6}(?:\d{3})?", re.ASCII)
_LONGEST = 200
_KEPT = 100
EXTENSION = ".ver"


def folder(location: str) -> str:
    """The folder of our files, with a trailing slash, inside a canonical table location."""
    return f"{location}/metadata/_sfn/"


def keys(location: str, namespace: Sequence[str], name: str, ref: str = "main") -> tuple[str, ...]:
    """The plain key and, where it differs, the strict one."""
    place = folder(location)
    plain = file_name(namespace, name, ref, strict=False)
    strict = file_name(namespace, name, ref, strict=True)
    return (place + plain,) if plain == strict else (place + plain, place + strict)


def file_name(namespace: Sequence[str], name: str, ref: str, *, strict: bool) -> str:
    """The name of one table's file for one ref.

    Args:
        strict: `_` inside a part is `%5F`, so that no two identifiers share a name.
    """
    levels = [".".join(_encoded(level, strict=strict) for level in namespace)] if namespace else []
    whole = "_".join([*levels, _encoded(name, strict=strict), _ref(ref, strict=strict)])
    return (whole if len(whole) <= _LONGEST else _shortened(whole)) + EXTENSION


def dotted(namespace: Sequence[str], name: str) -> str:
    """The identifier as one unambiguous text: encoded levels and name, joined by dots."""
    return ".".join(_encoded(part, strict=False) for part in (*namespace, name))


@lru_cache(4096)
def _encoded(text: str, *, strict: bool) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    encoded = "".join(chr(byte) if byte in _STANDS else f"%{byte:02X}" for byte in raw)
    return encoded.replace("_", "%5F") if strict else encoded


def _ref(ref: str, *, strict: bool) -> str:
    encoded = _encoded(ref, strict=strict)
    if ref == "head" or _ORDINAL.fullmatch(ref):
        return f"%{ord(ref[0]):02X}{encoded[1:]}"
    return encoded


def _shortened(whole: str) -> str:
    owner, _, tail = whole.rpartition("_")
    digest = hashlib.sha256(owner.encode("ascii")).hexdigest()[:32]
    kept = re.sub(r"%[0-9A-F]?$", "", owner[:_KEPT])
    return f"{kept}~{digest}_{tail}"
