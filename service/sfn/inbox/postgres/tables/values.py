"""Values that only PostgreSQL needs another form of."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b, sha256
from typing import Any, Final, Protocol

from sfn.domain.identifiers import JobKey
from sfn.inbox.codec import decode_key, encode_key
from sfn.inbox.postgres.transaction import TableLocation

LONGEST: Final = 2000
"""Bytes of a key that goes into an index: a page of a B-tree takes a third of its 8192 at most, with what is beside."""
_BEGINNING: Final = 400


class Sql(Protocol):
    """One transaction, as a place where statements are run."""

    async def fetch(self, statement: str, *values: object) -> Sequence[Sequence[Any]]:
        """The rows that a statement answers."""
        ...

    async def execute(self, statement: str, *values: object) -> int:
        """Run a statement, or several without values; how many rows the last one changed."""
        ...


def address(subject: JobKey) -> tuple[str, str | None]:
    """A subject's key, and None; of one that no index takes a beginning with a digest, which is no key, and the key."""
    key = encode_key(subject)
    if len(key) * 4 <= LONGEST or len(key.encode()) <= LONGEST:
        return key, None
    return f"{key[:_BEGINNING]}…{sha256(key.encode()).hexdigest()}", key


def addresses(subjects: Sequence[JobKey]) -> list[str]:
    """The addresses of subjects, without the rest."""
    return [address(subject)[0] for subject in subjects]


def addressed(key: str, name: str | None) -> JobKey:
    """The subject of an address."""
    return decode_key(key if name is None else name)


def text(value: str) -> str:
    """A text as the database can hold it, which is the same but for characters that mean nothing."""
    if "\0" in value or not value.isascii():
        return value.replace("\0", "\ufffd").encode(errors="replace").decode()
    return value


def text_or_none(value: str | None) -> str | None:
    """The same of one that may be missing."""
    return None if value is None else text(value)


def lock_number(place: TableLocation) -> int:
    """Which advisory lock stands for a place."""
    return number_of(f"place\0{place.catalog}\0{place.location}")


def number_of(name: str) -> int:
    """A number of 64 bits for a name: two names that share one wait for each other now and then, no more."""
    digest = blake2b(f"sfn\0{name}".encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
