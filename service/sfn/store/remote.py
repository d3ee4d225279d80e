"""Files of an object store: compare-and-swap by conditional requests, to whatever service (`sfn.store.objects`)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Final

import anyio

from sfn.errors import Trouble, Unsure
from sfn.store import Gone, Guarantees, Moved
from sfn.store.content import READ_AT_MOST, check_length
from sfn.store.denials import DENIED_BY, HINT, Denials, Reach
from sfn.store.meanings import MEANINGS
from sfn.store.objects import Found, Kind, Objects, Page, Refused
from sfn.store.prove import CLEANED_WITHIN, PROBE, Proofs
from sfn.words import Held

_OF_ITS_PLACE: Final = frozenset({Kind.DENIED, Kind.REJECTED})
"""What a service may say of one object (a policy, a key of KMS, a quota) and of everything."""
PAGE: Final = 1000
"""Keys of a listing that are asked for at once: as many as every service gives."""


class Service:
    """What was found out about one service: shared by all stores on it, whoever they ask as.

    Args:
        made_up: a tag in its own form that no object has.
        unsafe: `unsafe_unconditional_writes`.
        seconds: a clock that only goes forward.

    Attributes:
        proofs: that its buckets honour conditions.
        denials: what it carries out and what it refuses, for principals of one table each.
        made_up, seconds: as above.
    """

    def __init__(self, made_up: str, *, unsafe: bool = False, seconds: Callable[[], float] = monotonic) -> None:
        self.made_up, self.seconds = made_up, seconds
        self.proofs = Proofs(made_up=made_up, unsafe=unsafe)
        self.denials = Denials(seconds)


class RemoteStore:
    """Implements `PointerStore` on a service's requests.

    Each write carries a mark of its own. Where a condition did not hold, the mark tells whether it was this very write
    that came first: its answer was lost, and it was sent once more on the way.

    Args:
        objects: the service's requests, as one principal.
        service: what is known of it.
        of_one_table: the principal may work at one table's place only, and can't tell what is permitted elsewhere.
    """

    def __init__(self, objects: Objects, service: Service, *, of_one_table: bool = False) -> None:
        self._objects, self._proofs = objects, service.proofs
        # What one principal may do says nothing about another, unless each has a single table.
        self._denials = service.denials if of_one_table else Denials(service.seconds)
        self._made_up, self._of_one_table = service.made_up, of_one_table
        self._self, self._writes = secrets.token_hex(8), count(1)
        self._unseen: set[str] = set()

    async def read(self, key: str) -> Held | None:
        found = await self._seen(key)
        return None if found is None else Held(found.body, found.tag)

    async def part(self, key: str, start: int, most: int) -> bytes | None:
        try:
            part = await self._objects.part(key, start, most)
        except Refused as refused:
            if refused.kind is Kind.MISSING or (refused.kind is Kind.DENIED and await self._listed(key) is False):
                return None
            raise await self._trouble("read", key, refused) from refused
        self._denials.permitted("read", key)
        return part

    async def write(self, key: str, body: bytes, replacing: Held | None) -> Held | Moved:
        check_length(key, body)
        self._proofs.check(key)
        mark = f"{self._self}-{next(self._writes)}"
        try:
            condition = None if replacing is None else self._proofs.condition(key, replacing.tag)
            tag = await self._objects.put(key, body, condition, mark)
        except Refused as refused:
            # An object that is not there has no tag: that is how some services answer a replacement.
            if refused.kind in {Kind.MOVED, Kind.MISSING}:
                return await self._own(key, body, mark, refused)
            raise await self._trouble("write", key, refused, changes=True) from refused
        self._denials.permitted("write", key)
        self._unseen.discard(key)
        return Held(body, tag)

    async def delete(self, key: str, expected: Held) -> Gone | Moved:
        self._proofs.check(key)
        try:
            await self._objects.delete(key, self._proofs.condition(key, expected.tag))
        except Refused as refused:
            if refused.kind is Kind.MISSING:
                return Gone()
            if refused.kind is Kind.MOVED:
                return Gone() if await self._seen(key) is None else Moved()
            raise await self._trouble("delete", key, refused, changes=True) from refused
        self._denials.permitted("delete", key)
        return Gone()

    async def discard(self, key: str) -> None:
        """Delete a file of the proof, whatever it holds. Nothing else may be deleted so.

        Raises:
            Trouble: as `delete`.
        """
        try:
            await self._objects.delete(key, None)
        except Refused as refused:
            if refused.kind is not Kind.MISSING:
                raise await self._trouble("delete", key, refused, changes=True) from refused

    async def list(self, prefix: str, limit: int) -> list[str]:
        keys: dict[str, None] = {}
        begin: str | None = None
        begun: set[str | None] = set()
        while len(keys) < limit:
            try:
                page = await self._page(prefix, min(PAGE, limit - len(keys)), begin, begun)
            except Refused as refused:
                raise await self._trouble("list", prefix, refused) from refused
            self._denials.permitted("list", prefix)
            # A console makes folders as objects, empty and named as the prefix itself. Some services pass over the
            # prefix or the delimiter.
            keys |= dict.fromkeys(key for key in page.keys if key.rpartition("/")[0] + "/" == prefix and key != prefix)
            begin = page.next
            if begin is None:
                break
        return sorted(keys)[:limit]

    async def prove(self, key: str) -> Guarantees:
        return await self._proofs.of(self, key)

    async def close(self) -> None:
        """As `Objects.close`."""
        await self._objects.close()

    async def _page(self, prefix: str, most: int, begin: str | None, begun: set[str | None]) -> Page:
        """A page of a listing.

        Args:
            begun: where all pages before began; this one is added.

        Raises:
            Refused: the listing does not go on.
        """
        if begin == "" or begin in begun:
            raise Refused(Kind.UNANSWERED, "a listing that says that there is more, and does not say where")
        begun.add(begin)
        return await self._objects.page(prefix, most, begin)

    async def _seen(self, key: str) -> Found | None:
        """What lies at a key, None for nothing.

        Whoever may not list a whole bucket is denied to read what is not there. A listing of the one key tells the
        difference, and where that is denied too, the creation of the file does: it is taken for missing until then.
        """
        try:
            found = await self._objects.get(key, READ_AT_MOST)
        except Refused as refused:
            if refused.kind is Kind.MISSING or (refused.kind is Kind.DENIED and await self._may_be_absent(key)):
                return None
            raise await self._trouble("read", key, refused) from refused
        self._denials.permitted("read", key)
        return found

    async def _may_be_absent(self, key: str) -> bool:
        """Whether nothing lies at a key that may not be read, as far as anybody can tell."""
        listed = await self._listed(key)
        if listed is None:
            self._unseen.add(key)
        return not listed

    async def _listed(self, key: str) -> bool | None:
        """Return True if a listing shows a key, None if listings are denied."""
        try:
            page = await self._objects.page(key, 1, None)
        except Refused as refused:
            if refused.kind is not Kind.DENIED:
                raise await self._trouble("list", key, refused) from refused
            return None
        return key in page.keys

    async def _own(self, key: str, body: bytes, mark: str, refused: Refused) -> Held | Moved:
        """What a write came to whose condition did not hold."""
        found = await self._seen(key)
        if found is None and key in self._unseen:
            self._unseen.discard(key)
            denied = Refused(Kind.DENIED, f"that the object is there and may not be read ({refused.found})")
            raise await self._trouble("read", key, denied)
        return Held(body, found.tag) if found is not None and found.mark == mark else Moved()

    async def _trouble(self, verb: str, key: str, refused: Refused, *, changes: bool = False) -> Trouble:
        meaning = MEANINGS[refused.kind]
        error: type[Trouble] = meaning.error
        scope = meaning.scope
        if refused.kind in _OF_ITS_PLACE:
            denied, scope = DENIED_BY[await self._reach(verb, key)]
            error = denied if refused.kind is Kind.DENIED else error
        return (Unsure if changes and refused.kind in {Kind.UNANSWERED, Kind.TAGLESS} else error)(
            key,
            scope=scope,
            expected=meaning.expected.format(verb),
            found=refused.found,
            remedy=refused.remedy or meaning.remedy,
            retry_after=refused.retry_after,
        )

    async def _reach(self, verb: str, key: str) -> Reach:
        witnesses = self._denials.denied(verb, key)
        answer = None
        for witness in () if self._of_one_table else witnesses:
            answer = await self._is_done_at(witness, verb)
            if answer:
                break
        return self._denials.reach(verb, key, elsewhere=answer)

    async def _is_done_at(self, witness: str, verb: str) -> bool | None:
        """Whether a verb is carried out where it was before; None where the answer is no clear one.

        What changes something is tried on a file of its own beside the witness. The witness is another table's live
        file, and a condition that protected it when the store was proven may be lost since.
        """
        try:
            if verb == "read":
                await self._objects.part(witness, 0, 1)
            elif verb == "list":
                await self._objects.page(witness, 1, None)
            elif verb == "write":
                await self._probed(_probe_beside(witness))
            else:
                # Nothing lies there: a file would stay behind where deletions are denied.
                proven = self._proofs.known(witness)
                is_conditional = proven is not None and proven.conditional_delete
                made_up = self._proofs.condition(witness, self._made_up) if is_conditional else None
                await self._objects.delete(_probe_beside(witness), made_up)
        except Refused as refused:
            if refused.kind in _OF_ITS_PLACE:
                return False
            # It got as far as the condition, or as the object that is gone.
            return True if refused.kind in {Kind.MOVED, Kind.MISSING} else None
        return True

    async def _probed(self, key: str) -> None:
        """Create a file of our own, and delete it.

        Raises:
            Refused: it was not created.
        """
        # A stop must not leave the file behind.
        with anyio.CancelScope(shield=True):
            await self._objects.put(key, b"", None, f"{self._self}-0")
            with suppress(Trouble), anyio.move_on_after(CLEANED_WITHIN):
                await self.discard(key)


def _probe_beside(witness: str) -> str:
    """The key of a file of our own in a file's folder. A policy may deny hints by how their names end."""
    folder, _, name = witness.rpartition("/")
    return f"{folder}/{PROBE}{secrets.token_hex(8)}{f'-{name}' if name == HINT else '.json'}"
