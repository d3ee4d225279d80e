"""Sorts the exceptions that no adapter foresaw: what this process lacks, what may pass, and defects."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

SHORT_OF: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS, errno.EUSERS, errno.ENOLCK}
)
"""What the system says when this process, or the machine, has too few descriptors, threads, locks or too little memory.
"""
_NO_THREAD: Final = "can't start new thread"
_FOLLOWED: Final = 20
"""Exceptions of one chain that are looked at."""


class Unforeseen(Enum):
    """What an exception that is no `Trouble` means for the attempt that it ended."""

    SHORTAGE = auto()
    """This process lacks something, whatever the table: nothing is wrong with the table."""
    PASSING = auto()
    """The system or a network refused something. It counts as the table's trouble, and is tried for a day."""
    DEFECT = auto()
    """The code can't cope with this table: after a few attempts it is poison."""


def kind_of(error: BaseException) -> Unforeseen:
    """Sort an exception.

    A library may wrap the system's error, or meet it while it handles another one. So a shortage is looked for in the
    whole chain. Any other `OSError` counts only where it is the error itself or its stated cause: code that handles a
    `FileNotFoundError` may still have a defect.
    """
    if any(_is_shortage(each) for each in _chain(error, contexts=True)):
        return Unforeseen.SHORTAGE
    if any(isinstance(each, OSError) for each in _chain(error, contexts=False)):
        return Unforeseen.PASSING
    return Unforeseen.DEFECT


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in SHORT_OF
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_THREAD in _text(error))


def _text(error: BaseException) -> str:
    return next((argument for argument in error.args if isinstance(argument, str)), "")


def _chain(error: BaseException, *, contexts: bool) -> Iterator[BaseException]:
    """An exception, what it is made of, and what led to it."""
    left, seen = [error], set[int]()
    while left and len(seen) < _FOLLOWED:
        each = left.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
        if each.__cause__ is not None:
            left.append(each.__cause__)
        elif contexts and each.__context__ is not None and not each.__suppress_context__:
            left.append(each.__context__)
