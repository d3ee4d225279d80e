"""What an operating system's refusal means for the work at hand: matched by its number, never by its message."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sfn.errors import ErrorScope, ExternalError, OutcomeUnknown, Permanent, Transient


@dataclass(frozen=True, slots=True)
class _OsErrorMeaning:
    """What to do next (`error`), whose budget it spends, and the two halves of the message."""

    error: type[Transient | Permanent]
    scope: ErrorScope
    expected: str
    remedy: str


_FULL = _OsErrorMeaning(Transient, ErrorScope.STORE, "room for a small file", "free some space or raise the quota")
_DESCRIPTORS = _OsErrorMeaning(Transient, ErrorScope.PROCESS, "a free file descriptor", "raise the limit of open files")
_MEMORY = _OsErrorMeaning(
    Transient, ErrorScope.PROCESS, "memory and locks of the system", "give the service and its machine more"
)
_BROKEN = _OsErrorMeaning(Transient, ErrorScope.STORE, "a working file system", "look at the system's log")
_READ_ONLY = _OsErrorMeaning(Permanent, ErrorScope.STORE, "a writable file system", "mount it read-write")
_TOO_SMALL = _OsErrorMeaning(Permanent, ErrorScope.STORE, "a limit of file sizes above 64 KiB", "raise RLIMIT_FSIZE")
_FORBIDDEN = _OsErrorMeaning(
    Permanent, ErrorScope.TABLE, "permission to work in this folder", "let the service's user read, write and search it"
)
_ODD = _OsErrorMeaning(
    Permanent, ErrorScope.TABLE, "a regular file, no link to one, in a folder", "move away what lies there"
)
_NO_NAME = _OsErrorMeaning(
    Permanent, ErrorScope.TABLE, "a name that the file system can hold", "use a shorter or simpler location"
)
_NO_FOLDER = _OsErrorMeaning(
    Transient, ErrorScope.TABLE, "the table's folder", "mount the file system that holds it, or create the folder"
)
_UNFORESEEN = _OsErrorMeaning(Transient, ErrorScope.TABLE, "a file operation that succeeds", "")

_MEANINGS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EMFILE: _DESCRIPTORS,
    errno.ENFILE: _DESCRIPTORS,
    errno.ENOMEM: _MEMORY,
    errno.ENOBUFS: _MEMORY,
    errno.ENOLCK: _MEMORY,
    errno.EIO: _BROKEN,
    errno.ESTALE: _BROKEN,
    errno.ETIMEDOUT: _BROKEN,
    errno.ENOTCONN: _BROKEN,
    errno.ENODEV: _BROKEN,
    errno.EROFS: _READ_ONLY,
    errno.EFBIG: _TOO_SMALL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.ENOTDIR: _ODD,
    errno.EISDIR: _ODD,
    errno.ELOOP: _ODD,
    errno.ENXIO: _ODD,
    errno.ENAMETOOLONG: _NO_NAME,
    errno.EILSEQ: _NO_NAME,
    errno.ENOENT: _NO_FOLDER,
}
_UNCERTAIN = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EINTR})


@contextmanager
def map_os_errors(where: str) -> Iterator[None]:
    """Turn every `OSError` of the block into a trouble of that file or folder."""
    try:
        yield
    except OSError as error:
        raise error_of(where, error) from error


@contextmanager
def map_uncertain_errors(where: str) -> Iterator[None]:
    """As the step that makes a change visible: where nobody can tell whether it happened, say so.

    Raises:
        Unsure: scope store, for those errors that leave it open.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _UNCERTAIN:
            raise outcome_unknown(where, error) from error
        raise


def error_of(where: str, error: OSError) -> ExternalError:
    """The trouble that an error of the operating system is."""
    meaning = _MEANINGS.get(error.errno or 0, _UNFORESEEN)
    return meaning.error(
        where, scope=meaning.scope, expected=meaning.expected, found=describe_os_error(error), remedy=meaning.remedy
    )


def outcome_unknown(where: str, error: OSError) -> OutcomeUnknown:
    """The trouble of a change that may be visible and may not outlive a power cut."""
    return OutcomeUnknown(
        where,
        scope=ErrorScope.STORE,
        expected="a durable change",
        found=describe_os_error(error),
        remedy="look at the system's log",
    )


def describe_os_error(error: OSError) -> str:
    """An error in words: its symbol and the system's own text."""
    number = error.errno or 0
    return f"{errno.errorcode.get(number, number)} ({os.strerror(number)})"
