"""`extract`: the needed members of a large JSON document, cut out as it arrives.

A decoder holds the interpreter lock to its end, in any thread: a body of 250 MiB would stall the event loop for 0.2 to
0.4 s. Here each step takes a millisecond, and the loop runs in between. Only the excerpt is held in memory.

ijson was measured as an alternative. It needs three times the processor time, refuses a whole document for one string
of more than 1 MiB (a name mapping may be as long) or for the integer -2**63, and changes lone surrogates.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeAlias

import msgspec
from anyio import lowlevel

WantedMembers: TypeAlias = Mapping[str, "WantedMembers | None"]
"""Needed members of an object, by name. A value names the needed members of a nested object; None means all of it."""

_STEP_BYTES: Final = 2**16
"""Bytes that are scanned without a pause; at most a millisecond for the documents that catalogs send."""
_FIRST_PIECE: Final = 2**8
"""Bytes of an array or object that are scanned first: most are as small."""
_BRACKET_ROUNDS: Final = 8

_SPACE: Final = re.compile(rb"[ \t\n\r]*+")
_SCALAR: Final = re.compile(rb"[-+.0-9A-Za-z]*+")
_TEXT: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_MEMBER: Final = re.compile(
    rb"""
    [ \t\n\r]*+ ("TEXT") [ \t\n\r]*+ : [ \t\n\r]*+
    (?: "TEXT" | [{\[] (?: [^"{}\[\]]++ | "TEXT" )*+ [}\]] | [-+.0-9A-Za-z]*+ )
    [ \t\n\r]*+ ,
    """.replace(b"TEXT", _TEXT.pattern),
    re.DOTALL | re.VERBOSE,
)
"""A member without deep or long values, and the comma behind it."""

_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"{}[]"))
_AS_BRACES: Final = bytes.maketrans(b"[]", b"{}")


async def extract(start: bytes | bytearray, parts: AsyncIterator[bytes], wanted: WantedMembers) -> bytearray:
    """Return the document with its wanted members only; nothing, which no decoder accepts, if it is incomplete.

    Of unwanted members only the end is found, so errors inside may pass.

    Args:
        start: the beginning of the document.
        parts: the rest, in order, none empty; not read further if the document is no JSON.
        wanted: members of the outermost object.
    """
    scanner = _JsonScanner(start, parts)
    try:
        await scanner.document(wanted)
    except _IncompleteJson:
        return bytearray()
    return scanner.output


class _IncompleteJson(Exception):
    """A document that is incomplete or no JSON."""


@dataclass(frozen=True, slots=True)
class _OpenContainer:
    """The scan position inside an array or object.

    Attributes:
        depth: number of open arrays and objects, at least 1.
        is_text: True inside a string.
        is_escaped: True behind a backslash.
    """

    depth: int = 1
    is_text: bool = False
    is_escaped: bool = False

    def after(self, piece: bytes) -> _OpenContainer | None:
        """Return the position behind one more piece, not empty; None if the array or object ends within the piece."""
        piece = piece[self.is_escaped :]
        is_escaped = False
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"")
            is_escaped = piece.endswith(b"\\")
            piece = piece.replace(b'\\"', b"")
        texts = piece.split(b'"')
        signs = b"".join(texts[self.is_text :: 2]).translate(_AS_BRACES, _NO_BRACKETS)
        for _ in range(_BRACKET_ROUNDS):
            # Pairs that open and close do not change the depth. Without them few signs are left to be counted.
            signs = signs.replace(b"{}", b"")
        depths = list(accumulate((1 if sign == ord("{") else -1 for sign in signs), initial=self.depth))
        if min(depths) <= 0:
            return None
        return _OpenContainer(depths[-1], self.is_text ^ (len(texts) % 2 == 0), is_escaped)


class _JsonScanner:
    """One pass over a document.

    Attributes:
        output: the excerpt so far.
    """

    def __init__(self, begun: bytes | bytearray, parts: AsyncIterator[bytes]) -> None:
        self.output = bytearray()
        self._arrived, self._consumed, self._parts = begun, 0, parts
        self._part, self._at = b"", 0

    async def document(self, wanted: WantedMembers) -> None:
        """Extract the wanted members of the outermost object; raise _IncompleteJson."""
        await self._object(wanted)
        if await self._sign():
            raise _IncompleteJson

    async def _object(self, wanted: WantedMembers) -> None:
        sign = await self._pass(b"{")
        self.output += b"{"
        begins = len(self.output)
        if await self._sign() == b"}":
            sign = await self._pass(b"}")
        while sign != b"}":
            self._skip_members(wanted)
            await self._member(wanted, b"," if len(self.output) > begins else b"")
            sign = await self._pass(b",", b"}")
        self.output += b"}"

    def _skip_members(self, wanted: WantedMembers) -> None:
        while (member := _MEMBER.match(self._part, self._at)) is not None and _decoded(member[1]) not in wanted:
            self._at = member.end()

    async def _member(self, wanted: WantedMembers, separator: bytes) -> None:
        key = bytearray()
        await self._string(key)
        await self._pass(b":")
        name = _decoded(key)
        if name not in wanted:
            await self._value(None)
            return
        self.output += separator + key + b":"
        inner = wanted[name]
        if inner is not None and await self._sign() == b"{":
            await self._object(inner)
        else:
            await self._value(self.output)

    async def _value(self, sink: bytearray | None) -> None:
        match await self._sign():
            case b'"':
                await self._string(sink)
            case b"{" | b"[":
                await self._container(sink)
            case _:
                await self._run(_SCALAR, sink)

    async def _string(self, sink: bytearray | None) -> None:
        await self._pass(b'"', sink=sink)
        await self._run(_TEXT, sink)
        # This skips no white space: the run ended at the quote, or at the document's end.
        await self._pass(b'"', sink=sink)

    async def _container(self, sink: bytearray | None) -> None:
        await self._pass(b"{", b"[", sink=sink)
        within, size, is_near = _OpenContainer(), _FIRST_PIECE, False
        while True:
            piece = self._part[self._at : self._at + size]
            if not piece:
                if not await self._more():
                    raise _IncompleteJson
                continue
            after = within.after(piece)
            if after is not None:
                within = after
                self._to(self._at + len(piece), sink)
                size = size if is_near else min(2 * size, _STEP_BYTES)
            elif len(piece) > 1:
                size, is_near = len(piece) // 2, True
            else:
                self._to(self._at + 1, sink)
                return

    async def _sign(self) -> bytes:
        """Return the next byte that is no white space, without passing it; nothing at the end."""
        await self._run(_SPACE, None)
        return self._part[self._at : self._at + 1]

    async def _pass(self, *signs: bytes, sink: bytearray | None = None) -> bytes:
        """Pass the next byte that is no white space; raise _IncompleteJson if it is none of `signs`."""
        sign = await self._sign()
        if sign not in signs:
            raise _IncompleteJson
        self._to(self._at + 1, sink)
        return sign

    async def _run(self, pattern: re.Pattern[bytes], sink: bytearray | None) -> None:
        """Pass everything that matches the pattern, across parts."""
        while True:
            taken = pattern.match(self._part, self._at)
            self._to(taken.end() if taken else self._at, sink)
            # A backslash at the end needs the byte behind it.
            if self._part[self._at : self._at + 2] not in {b"", b"\\"} or not await self._more():
                return

    def _to(self, end: int, sink: bytearray | None) -> None:
        if sink is not None:
            sink += self._part[self._at : end]
        self._at = end

    async def _more(self) -> bool:
        """Take the next step of the document, and return False at its end."""
        await lowlevel.checkpoint()
        if self._consumed >= len(self._arrived):
            self._arrived, self._consumed = await anext(self._parts, b""), 0
        more = self._arrived[self._consumed : self._consumed + _STEP_BYTES]
        self._consumed += len(more)
        self._part, self._at = self._part[self._at :] + more, 0
        return bool(more)


def _decoded(key: bytes | bytearray) -> str:
    try:
        return msgspec.json.decode(key, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _IncompleteJson from None
