"""Sorts the exceptions that no adapter foresaw: what this process lacks, what may pass, and defects."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

SHORTAGE_ERRNOS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS, errno.EUSERS, errno.ENOLCK}
)
"""What the system says when this process, or the machine, has too few descriptors, threads, locks or too little memory.
"""
_NO_THREAD: Final = "can't start new thread"
_MAX_CHAINED: Final = 20
"""Exceptions of one chain that are looked at."""


class UnexpectedErrorKind(Enum):
    """What an exception that is no `ExternalError` means for the attempt that it ended."""

    SHORTAGE = auto()
    """This process lacks something, whatever the table: nothing is wrong with the table."""
    TRANSIENT = auto()
    """The system or a network refused something. It counts as the table's trouble, and is tried for a day."""
    DEFECT = auto()
    """The code can't cope with this table: after a few attempts it is poison."""


def classify_error(error: BaseException) -> UnexpectedErrorKind:
    """Sort an exception.

    A library may wrap the system's error, or meet it while it handles another one. So a shortage is looked for in the
    whole chain. Any other `OSError` counts only where it is the error itself or its stated cause: code that handles a
    `FileNotFoundError` may still have a defect.
    """
    if any(_is_shortage(each) for each in _chain(error, contexts=True)):
        return UnexpectedErrorKind.SHORTAGE
    if any(isinstance(each, OSError) for each in _chain(error, contexts=False)):
        return UnexpectedErrorKind.TRANSIENT
    return UnexpectedErrorKind.DEFECT


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in SHORTAGE_ERRNOS
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_THREAD in _text(error))


def _text(error: BaseException) -> str:
    return next((argument for argument in error.args if isinstance(argument, str)), "")


def _chain(error: BaseException, *, contexts: bool) -> Iterator[BaseException]:
    """An exception, what it is made of, and what led to it."""
    pending, seen = [error], set[int]()
    while pending and len(seen) < _MAX_CHAINED:
        each = pending.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, BaseExceptionGroup):
            pending += each.exceptions
        if each.__cause__ is not None:
            pending.append(each.__cause__)
        elif contexts and each.__context__ is not None and not each.__suppress_context__:
            pending.append(each.__context__)
