"""The port to an object store or file system: small files, replaced by compare-and-swap (specification, section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sfn.domain.jobs import StoredObject


@dataclass(frozen=True, slots=True)
class PreconditionFailed:
    """The condition did not hold: somebody else wrote or deleted the file. An answer, not an error."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The file is not there any more."""


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What a store was proven to do.

    Attributes:
        swap: a write on a stale condition is refused.
        conditional_delete: a delete on a stale condition is refused.
    """

    swap: bool
    conditional_delete: bool


class ObjectStore(Protocol):
    """Files by key: a normalised absolute URL such as `file:///warehouse/t/metadata/_sfn/ns_t_main.ver`.

    Every verb raises `Transient` (try later: a full disk, no answer, another writer in the way), `OutcomeUnknown` (a
    write or delete may have been applied) or `Permanent` (a forbidden folder, a read-only file system, what is no
    regular file, a body longer than a document may be), each with its scope. None of them ever leaves a partial file.
    """

    async def read(self, key: str) -> StoredObject | None:
        """Body and tag in one request, None where there is no such file.

        Of a body longer than a document may be, just so much that its decoder sees one too long.
        """
        ...

    async def read_range(self, key: str, start: int, length: int) -> bytes | None:
        """Bytes of a file of any length, such as a table's metadata: `length` from `start` on, or up to its end.

        None where there is no such file.
        """
        ...

    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        """Replace exactly `replacing`, or create the file where that is None. Durable when it returns."""
        ...

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        """Delete exactly `expected`. `Gone` also when nothing was there."""
        ...

    async def list(self, prefix: str, limit: int) -> list[str]:
        """Keys directly below a prefix that ends in `/`, in order, at most `limit`; [] where nothing is.

        Without folders, but with whatever else has a name that can be a key: a link too, which `read` then refuses.
        """
        ...

    async def probe(self, key: str) -> Guarantees:
        """Try the conditions on a file of the proof's own, and remember what was proven.

        Args:
            key: a file, there or not, of the folder in which the proof's file may lie for a moment.

        Raises:
            Permanent: scope store: the store takes a write although its condition does not hold, and the settings do
                not allow that; or it refuses a write although its condition holds; or it is unfit otherwise.
        """
        ...


@runtime_checkable
class BatchReader(Protocol):
    """A store that reads several files for little more than one costs."""

    async def read_all(self, keys: Sequence[str]) -> Sequence[StoredObject | None]:
        """As `ObjectStore.read` of each."""
        ...


class StoreRouter(Protocol):
    """Which store holds a location."""

    def store_for(self, location: str) -> ObjectStore:
        """The store of a normalised location or key.

        Raises:
            LocationRefused: no store is configured for it.
        """
        ...


__all__ = ["BatchReader", "Deleted", "Guarantees", "ObjectStore", "PreconditionFailed", "StoreRouter"]
