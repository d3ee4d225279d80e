"""Every error of this project, and what its class says about what to do next.

    SfnError(where, expected, found, remedy)
    ├ ConfigurationError            the settings are wrong: nothing is started (`sfn.settings`)
    ├ Rejected(status)              the sender's fault: answered with that HTTP status
    │   └ NotInCatalog              the facade has no such table, namespace or view (`sfn.facade.routes`)
    ├ UnknownToService              the service that a command asks has no such thing (`sfn.cli.client`)
    ├ ConflictingState              that service knows better (`sfn.cli.client`)
    ├ SourceUnavailable             a source of events can't be had now: it is asked for ever (`sfn.pull`)
    ├ Unmanageable                  a table can't come under management as asked (`sfn.spark.manage_target`)
    ├ HalfManaged                   it is, and not all that was asked for is done (`sfn.spark.manage_target`)
    ├ NoCredentials                 a cloud's own ways to find out who asks found nobody
    ├ Unreadable                    the reader refuses
    │   ├ NotFound                  nothing of ours lies there
    │   │   └ DirectoryNotFound     there is no such directory
    │   ├ Ambiguous                 more than one table, and none was named
    │   ├ TooManyFiles              more files than a reader looks at
    │   ├ Dropped                   the table was dropped, or its chain of renames ends
    │   ├ NameTaken                 another table has the name now
    │   ├ RefNotFound               the table has no such branch or tag
    │   ├ CommitNotFound            the timeline has no commit of that time
    │   ├ MalformedDocument         a file of ours that is not an SFN document
    │   │   ├ UnknownFormatVersion  it is of a version that this reader does not know
    │   │   └ TooManyHops           documents forward in a circle, or too often
    │   ├ NotRelative               a document does not say where its metadata lies relative to it
    │   ├ Unsafe                    a file names a location that a reader does not follow
    │   ├ Stale                     the named metadata file is gone
    │   │   └ WrongTable            it is another table's
    │   ├ MalformedMetadata         the metadata file is none
    │   ├ NotPermitted              the store does not let us read
    │   ├ Unreachable               the store does not answer, or can't be read
    │   ├ NotInstalled              a package is missing that this needs, or is of a version that does not do
    │   └ NotSupported              an engine can't read what the table has; the remedy names one that can
    ├ ExternalError(scope,          retry_after)
    │   ├ Transient                 try again later
    │   │   ├ OutcomeUnknown        may have been applied: forget what was remembered, read again
    │   │   ├ Unauthenticated       nothing was done: who asked is not known, or not any more
    │   │   └ Forbidden             nothing was done: who asked is known and may not, and perhaps nobody may
    │   └ Permanent                 table scope: dead letter; catalog or store scope: the lane's breaker
    │       ├ LocationRefused
    │       ├ StoreUnfit            a store does not keep the conditions of writes (`sfn.storage.probe`)
    │       ├ UnaddressableTable    the catalog's paths can't name that table, but by another name of it
    │       ├ NoVendedCredentials   nobody has credentials for what a dropped table left behind
    │       └ ForbiddenForTable     nothing was done: who asked is known and may not, here
    └ FatalError                    the process must end: fsync error, lost lock, newer schema

A lost race is no error but an answer (`sfn.storage.PreconditionFailed`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final

import msgspec
from typing_extensions import override

# ── errors: Every error of this project


class SfnError(Exception):
    """Base of all errors.

    Args:
        where: the thing that is wrong: a file, a table, a setting, a URL.
        expected: what should have been there.
        found: what was there instead.
        remedy: what the reader of the message can do about it; may be empty.
    """

    def __init__(self, where: str, *, expected: str, found: str, remedy: str = "") -> None:
        self.where = where
        self.expected = expected
        self.found = found
        self.remedy = remedy
        super().__init__(where, expected, found, remedy)

    @override
    def __str__(self) -> str:
        text = f"{self.where}: expected {self.expected}, found {self.found}"
        return f"{text}; {self.remedy}" if self.remedy else text

    @override
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        # An exception is else made anew from its positional arguments, which `__init__` takes by name: a process pool
        # would break that is to hand one on.
        return _rebuild, (type(self), *self.args), vars(self)


class Rejected(SfnError):
    """What a sender sent cannot be taken.

    Args:
        status: HTTP status of the answer, 4xx.
    """

    def __init__(self, where: str, *, status: int, expected: str, found: str, remedy: str = "") -> None:
        super().__init__(where, expected=expected, found=found, remedy=remedy)
        self.status = status


class NoCredentials(SfnError):
    """None are to be had: now, or at all."""


class Unreadable(SfnError):
    """A reader refuses rather than guess."""


class NotFound(Unreadable):
    """No SFN file of the table lies where it was looked for."""


class DirectoryNotFound(NotFound):
    """There is no such directory."""


class Ambiguous(Unreadable):
    """Several tables share the directory and none was named."""


class TooManyFiles(Unreadable):
    """A folder holds more files than a reader looks at, so that it can't know what lies there."""


class Dropped(Unreadable):
    """The table was dropped, or a rename leads nowhere."""


class NameTaken(Unreadable):
    """The named table was renamed and another table carries its name now."""


class RefNotFound(Unreadable):
    """The table has no branch or tag of that name."""


class CommitNotFound(Unreadable):
    """Nothing tells which metadata file was current at that time."""


class MalformedDocument(Unreadable):
    """A file is not a valid SFN document."""


class UnknownFormatVersion(MalformedDocument):
    """An SFN document is of a version of the format that this reader does not know."""


class TooManyHops(MalformedDocument):
    """SFN documents forward to each other in a circle, or more often than a reader follows."""


class NotRelative(Unreadable):
    """An SFN document does not say where its metadata file lies relative to it."""


class Unsafe(Unreadable):
    """An SFN file, or a file that it leads to, names a location that a reader does not follow."""


class Stale(Unreadable):
    """The metadata file that an SFN file names is gone, or one that the metadata needs."""


class WrongTable(Stale):
    """The metadata file that an SFN file names belongs to another table."""


class MalformedMetadata(Unreadable):
    """The file that an SFN file names is no metadata file, or lacks what is looked for; or so is one below it."""


class NotPermitted(Unreadable):
    """A store does not let us read a file or list a folder."""


class Unreachable(Unreadable):
    """A store does not answer, or a file can't be read for another reason than a missing permission."""


class NotInstalled(Unreadable):
    """A package is missing, or is of a version that does not do; the remedy says how to install it."""


class NotSupported(Unreadable):
    """A reader can't read what the table has; the remedy names an engine that can."""


class ErrorScope(StrEnum):
    """How far a trouble reaches, and so whose budget it spends."""

    TABLE = "table"
    CATALOG = "catalog"
    STORE = "store"
    INBOX = "inbox"
    PROCESS = "process"


class ExternalError(SfnError):
    """Something outside failed.

    Args:
        scope: how far it reaches.
        retry_after: seconds that the other side asked us to wait, if it did.
    """

    def __init__(
        self,
        where: str,
        *,
        scope: ErrorScope,
        expected: str,
        found: str,
        remedy: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(where, expected=expected, found=found, remedy=remedy)
        self.scope = scope
        self.retry_after = retry_after

    def with_scope(self, scope: ErrorScope) -> ExternalError:
        """Return the same trouble with another scope, as one that may pass."""
        return Transient(
            self.where,
            scope=scope,
            expected=self.expected,
            found=self.found,
            remedy=self.remedy,
            retry_after=self.retry_after,
        )


class Transient(ExternalError):
    """It may work later."""


class OutcomeUnknown(Transient):
    """A write may or may not have been applied."""


class Unauthenticated(Transient):
    """A store does not accept who asks: other credentials may do."""


class Permanent(ExternalError):
    """It will not work until somebody changes something."""


class LocationRefused(Permanent):
    """A location that no file of ours may be written to or point into."""

    def __init__(self, where: str, *, expected: str, found: str, remedy: str = "") -> None:
        super().__init__(where, scope=ErrorScope.TABLE, expected=expected, found=found, remedy=remedy)


class UnaddressableTable(Permanent):
    """A catalog whose separator of namespace levels stands in a level: its paths name another table so.

    Args:
        addressed_levels: the levels that such a path names; none where it names none.
    """

    def __init__(
        self, where: str, *, expected: str, found: str, remedy: str = "", addressed_levels: tuple[str, ...] = ()
    ) -> None:
        super().__init__(where, scope=ErrorScope.TABLE, expected=expected, found=found, remedy=remedy)
        self.addressed_levels = addressed_levels


class NoVendedCredentials(Permanent):
    """A file of a table that its catalog does not have (any more), and so vends no credentials for."""


class Forbidden(Transient):
    """A store does not permit it to who asks, and perhaps to nobody: a policy may be wrong for a while."""


class ForbiddenForTable(Permanent):
    """A store does not permit it to who asks, and permits the same elsewhere."""


FORBIDDEN_ERRORS: Final = (Forbidden, ForbiddenForTable)
"""Credentials that are vended later may be for more."""


class FatalError(SfnError):
    """What this process rests on is gone: it must end and be started again."""


def suggest_name(word: str, known: Sequence[str]) -> str:
    """A remedy for a name that is not known."""
    if close := get_close_matches(word.lower(), known, n=1):
        return f"did you mean {close[0]}?"
    return f"known here: {', '.join(known)}" if known else ""


def _rebuild(kind: type[SfnError], *args: str) -> SfnError:
    return kind.__new__(kind, *args)


# ── iceberg_errors: Errors as clients of an Iceberg catalog know them

ICEBERG_ERROR_MEDIA_TYPE: Final = b"application/json"

ICEBERG_ERROR_TYPES: Final = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NotFoundException",
    405: "NotAllowedException",
    408: "ClientErrorException",
    413: "ClientErrorException",
    415: "NotSupportedException",
    429: "ClientErrorException",
    500: "InternalServerError",
    502: "ServiceFailureException",
    503: "ServiceUnavailableException",
    504: "ServiceFailureException",
}
"""By status: the examples of Iceberg's REST specification where it has one, else the names that Polaris answers with,
which are those of Iceberg's and Jakarta's exceptions."""


def iceberg_error_body(status: int, message: str, kind: str | None = None) -> bytes:
    """The body of an error.

    Args:
        status: HTTP status code, one of `REPORT_TYPES`.
        message: what is wrong, for people.
        kind: the exception that a client makes of it; None for the one of the status.
    """
    return msgspec.json.encode(
        {"error": {"message": message, "type": kind or ICEBERG_ERROR_TYPES[status], "code": status}}
    )
