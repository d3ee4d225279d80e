"""Encoding of values that PostgreSQL needs in another form."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b, sha256
from typing import Any, Final, Protocol

from sfn.domain.identifiers import JobKey
from sfn.inbox.codec import decode_key, encode_key
from sfn.inbox.postgres.transaction import TableLocation

LONGEST: Final = 2000
"""Most bytes of a key in an index: an entry of a B-tree takes at most a third of a page of 8192 bytes."""
_BEGINNING: Final = 400


class Sql(Protocol):
    """A transaction that runs statements."""

    async def fetch(self, statement: str, *values: object) -> Sequence[Sequence[Any]]:
        """Return the rows of a statement."""
        ...

    async def execute(self, statement: str, *values: object) -> int:
        """Run a statement, or several without values; return how many rows the last one changed."""
        ...


def address(subject: JobKey) -> tuple[str, str | None]:
    """Return the key of a subject and None; for a key too long for an index, its start with a digest, and the key."""
    key = encode_key(subject)
    if len(key) * 4 <= LONGEST or len(key.encode()) <= LONGEST:
        return key, None
    return f"{key[:_BEGINNING]}…{sha256(key.encode()).hexdigest()}", key


def addresses(subjects: Sequence[JobKey]) -> list[str]:
    """Return the indexed keys of subjects."""
    return [address(subject)[0] for subject in subjects]


def addressed(key: str, name: str | None) -> JobKey:
    """Return the subject of a result of `address`."""
    return decode_key(key if name is None else name)


def text(value: str) -> str:
    """Return a text without the characters that PostgreSQL cannot store: NUL and lone surrogates."""
    if "\0" in value or not value.isascii():
        return value.replace("\0", "\ufffd").encode(errors="replace").decode()
    return value


def text_or_none(value: str | None) -> str | None:
    """Return the same for a text that may be None."""
    return None if value is None else text(value)


def lock_number(place: TableLocation) -> int:
    """Return the number of the advisory lock of a location."""
    return number_of(f"place\0{place.catalog}\0{place.location}")


def number_of(name: str) -> int:
    """Return a number of 64 bits for a name; two names with the same number only wait for each other."""
    digest = blake2b(f"sfn\0{name}".encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
