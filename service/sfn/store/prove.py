"""The proof that a store honours conditions: tried on a real file, never read off a version or a feature list."""

from __future__ import annotations

import anyio

from sfn.errors import Permanent, Scope, Transient
from sfn.store import Gone, Guarantees, Moved, PointerStore
from sfn.words import Held

MADE_UP = "0" * 64
"""A tag that no content has, for stores whose tags are digests."""
RESTORES = 3
"""Attempts to put a file back that a store deleted although the condition did not hold."""
_OVERRIDE = (
    "use a store with conditional writes; or set `stores.NAME.unsafe_unconditional_writes = true` for a single replica "
    "and lose what the condition is for: a writer that was suspended may put an older pointer over a newer one, and "
    "readers go back until the next publish"
)


class Proof:
    """What one store was proven to do, asked of it once.

    Args:
        made_up: a tag in the store's own form that no file of it ever has.
        unsafe: `unsafe_unconditional_writes`: a store that ignores conditions is reported, not refused.

    Attributes:
        known: what was found out; None before.
    """

    def __init__(self, *, made_up: str = MADE_UP, unsafe: bool = False) -> None:
        self._made_up = made_up
        self._unsafe = unsafe
        self.known: Guarantees | None = None

    async def of(self, store: PointerStore, key: str) -> Guarantees:
        """What the store guarantees; found out on an existing file the first time. A failure is not remembered.

        Raises:
            Permanent: scope store, where a create-only write replaced a file or a made-up tag was accepted.
            Transient: scope table, where the file is missing or somebody deleted it meanwhile.
        """
        if self.known is None:
            self.known = await prove(store, key, made_up=self._made_up, unsafe=self._unsafe)
        return self.known


class Proofs:
    """What each bucket of a service was proven to do: one may be of another kind than the next.

    Args:
        made_up, unsafe: as of `Proof`.
    """

    def __init__(self, *, made_up: str, unsafe: bool = False) -> None:
        self._made_up, self._unsafe = made_up, unsafe
        self._proofs: dict[str, tuple[anyio.Lock, Proof]] = {}

    def known(self, key: str) -> Guarantees | None:
        """What the bucket of a key was proven to do; None before."""
        found = self._proofs.get(key.split("/", 3)[2])
        return None if found is None else found[1].known

    async def of(self, store: PointerStore, key: str) -> Guarantees:
        """As `Proof.of`, of the bucket that a key lies in. Whoever asks at the same time shares one proof.

        Only the proof itself can't be cancelled, not the wait for that of somebody else.
        """
        bucket = key.split("/", 3)[2]
        if bucket not in self._proofs:
            self._proofs[bucket] = anyio.Lock(), Proof(made_up=self._made_up, unsafe=self._unsafe)
        lock, proof = self._proofs[bucket]
        if proof.known is not None:
            return proof.known
        async with lock:
            # A store that deletes on no condition has its file put back: a stop must not come between.
            with anyio.CancelScope(shield=True):
                return await proof.of(store, key)
        raise AssertionError("a shielded scope was cancelled")


async def prove(store: PointerStore, key: str, *, made_up: str, unsafe: bool) -> Guarantees:
    """Try every condition on an existing file with the content that it has, so that no answer can change it.

    A delete comes last: only a store that is known to create without replacing gets its file back for certain. For the
    moment in between the file of such a store is missing, so whoever may be cancelled shields the call.
    """
    held = await store.read(key)
    if held is None:
        raise _unproven(key)
    swap = await _creates_only(store, key, held)
    made = Held(held.body, made_up)
    swap = isinstance(await store.write(key, held.body, replacing=made), Moved) and swap
    if not swap and not unsafe:
        raise Permanent(
            key,
            scope=Scope.STORE,
            expected="a refused write",
            found="a store that ignores the condition of a write",
            remedy=_OVERRIDE,
        )
    return Guarantees(swap=swap, conditional_delete=swap and await _deletes_on_condition(store, key, made))


async def _creates_only(store: PointerStore, key: str, held: Held) -> bool:
    created = await store.write(key, held.body, replacing=None)
    if isinstance(created, Moved):
        return True
    # An honest store lets this pass too where somebody deleted the file just now; it will not do so twice.
    if isinstance(await store.write(key, held.body, replacing=None), Held):
        return False
    await _undo(store, key, created)
    raise _unproven(key)


async def _deletes_on_condition(store: PointerStore, key: str, made: Held) -> bool:
    if isinstance(await store.delete(key, made), Moved):
        return True
    restored = await _restored(store, key, made.body)
    # An honest store answers `Gone` too where somebody deleted the file just now; it will not do so twice.
    if isinstance(await store.delete(key, made), Gone):
        await _restored(store, key, made.body)
        return False
    await _undo(store, key, restored)
    raise _unproven(key)


async def _restored(store: PointerStore, key: str, body: bytes) -> Held:
    restored = await _put_back(store, key, body)
    if isinstance(restored, Moved):
        # Somebody else's file, or our own after an answer that was lost: it is there, and that is what matters.
        raise _unproven(key)
    return restored


async def _put_back(store: PointerStore, key: str, body: bytes) -> Held | Moved:
    failed = 0
    while True:
        try:
            return await store.write(key, body, replacing=None)
        except Transient:
            failed += 1
            if failed == RESTORES:
                raise


async def _undo(store: PointerStore, key: str, ours: Held) -> None:
    """Delete a file that the proof brought back after somebody deleted it."""
    if await store.read(key) == ours:
        await store.delete(key, ours)


def _unproven(key: str) -> Transient:
    return Transient(
        key,
        scope=Scope.TABLE,
        expected="a file that nobody deletes or creates meanwhile",
        found="one that somebody did",
    )
