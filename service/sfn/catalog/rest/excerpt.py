"""What is needed of a large JSON document, taken out of it as it arrives.

A decoder holds the interpreter's lock to its end, in whichever thread: a body of 250 MiB would stall the event loop for
0.2 to 0.4 s. Here each step takes milliseconds, and the loop has its turn in between. Nothing is kept but the excerpt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final, TypeAlias

import ijson
import msgspec
from anyio import lowlevel

Wanted: TypeAlias = Mapping[str, "Wanted | None"]
"""An object's members that are needed, by name: of an object only these of its own, or whole where it says None."""

_STEP: Final = 2**14
"""Bytes that are parsed without a pause. More at once are slower: what they give does not fit into the caches."""
_LONGEST_TEXT: Final = 2**21
"""Bytes of one string. The parser goes through a string again from its beginning with each step that belongs to it."""

_DEEPER: Final = {"start_map": 1, "start_array": 1, "end_map": -1, "end_array": -1}


async def excerpt(begun: bytes | bytearray, parts: AsyncIterator[bytes], wanted: Wanted) -> bytearray:
    """The same document with the wanted members alone; nothing, which no decoder takes, where there is none to be had.

    That is: it is no whole object, or there is an integer of more than 64 bits or a string of more than 2 MiB in it.

    Args:
        begun: what there is of the document.
        parts: the rest of it, in order, none empty; not read on where it is no JSON.
        wanted: members of the outermost object.
    """
    try:
        return bytearray(msgspec.json.encode(await _kept(begun, parts, wanted)))
    except (ijson.JSONError, ValueError, RecursionError, _Unfit):
        return bytearray()


class _Unfit(Exception):
    """It is no object, or more than is borne at once."""


async def _kept(begun: bytes | bytearray, parts: AsyncIterator[bytes], wanted: Wanted) -> object:
    keeper, events, silent = _Keeper(wanted), ijson.sendable_list(), 0
    # Floats: without them, an integer of some thousand digits breaks the parser.
    parser = ijson.basic_parse_coro(events, use_float=True)
    part = begun or await anext(parts, b"")
    while part:
        for at in range(0, len(part), _STEP):
            step = part[at : at + _STEP]
            parser.send(step)
            silent = 0 if events else silent + len(step)
            if silent > _LONGEST_TEXT:
                raise _Unfit
            keeper.take(events)
            events.clear()
            await lowlevel.checkpoint()
        part = await anext(parts, b"")
    parser.close()
    return keeper.outermost.get("")


class _Keeper:
    """Builds what is wanted of a document from the parser's events.

    Attributes:
        outermost: the document under the name "", as soon as it begins.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.outermost: dict[str, object] = {}
        self._open: list[tuple[dict[str, object] | list[object], Wanted | None]] = [(self.outermost, {"": wanted})]
        self._name = ""
        self._skipped = 0

    def take(self, events: Iterable[tuple[str, object]]) -> None:
        """Go on with these; raises _Unfit."""
        # Nearly all is skipped: this loop is what a large document costs.
        skipped = self._skipped
        for event, value in events:
            if skipped:
                if event in _DEEPER:
                    skipped += _DEEPER[event]
                if skipped == 1:
                    skipped = 0
            elif event == "map_key":
                self._name = str(value)
                wanted = self._open[-1][1]
                # One more than arrays and objects are open in there, so that it is not 0 before its value begins.
                skipped = int(wanted is not None and value not in wanted)
            elif event in {"end_map", "end_array"}:
                self._open.pop()
            else:
                self._keep(event, value)
        self._skipped = skipped

    def _keep(self, event: str, value: object) -> None:
        into, wanted = self._open[-1]
        if into is self.outermost and event != "start_map":
            raise _Unfit
        if event == "start_map":
            made: dict[str, object] = {}
            self._open.append((made, wanted[self._name] if wanted is not None else None))
            value = made
        elif event == "start_array":
            items: list[object] = []
            self._open.append((items, None))
            value = items
        if isinstance(into, dict):
            into[self._name] = value
        else:
            into.append(value)
