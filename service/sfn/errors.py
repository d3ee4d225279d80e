"""All errors of this project, and the bodies of errors that clients of an Iceberg REST catalog read.

The class of an error says what to do next.

    SfnError(where, expected, found, remedy)
    ├ ConfigurationError            the settings are wrong: nothing is started (`sfn.settings`)
    ├ Rejected(status)              the sender's fault: answered with that HTTP status
    │   └ NotInCatalog              the facade has no such table, namespace or view (`sfn.facade.routes`)
    ├ UnknownToService              the service does not know what a command asks for (`sfn.cli.client`)
    ├ ConflictingState              the service's state forbids the command (`sfn.cli.client`)
    ├ SourceUnavailable             a source of events is unavailable: retried for ever (`sfn.pull`)
    ├ Unmanageable                  a table cannot come under management as requested (`sfn.spark.manage_target`)
    ├ HalfManaged                   it is managed, but a part of the request failed (`sfn.spark.manage_target`)
    ├ NoCredentials                 a cloud's own search found no credentials
    ├ Unreadable                    the reader refuses
    │   ├ NotFound                  there is no SFN file of ours
    │   │   └ DirectoryNotFound     there is no such directory
    │   ├ Ambiguous                 more than one table, and none was named
    │   ├ TooManyFiles              more files than a reader lists
    │   ├ Dropped                   the table was dropped, or its chain of renames ends
    │   ├ NameTaken                 another table has the name now
    │   ├ RefNotFound               the table has no such branch or tag
    │   ├ CommitNotFound            the history has no commit of that time
    │   ├ MalformedDocument         a file of ours that is not an SFN document
    │   │   ├ UnknownFormatVersion  the document's version is unknown to this reader
    │   │   └ TooManyHops           documents forward in a circle, or too often
    │   ├ NotRelative               a document does not give its metadata's location relative to itself
    │   ├ Unsafe                    a file names a location that a reader does not follow
    │   ├ Stale                     the named metadata file is gone
    │   │   └ WrongTable            the named metadata file is another table's
    │   ├ MalformedMetadata         the named file is no metadata file
    │   ├ NotPermitted              the store denies the read
    │   ├ Unreachable               the store does not answer, or cannot be read
    │   ├ NotInstalled              a required package is missing, or its version is unsuitable
    │   └ NotSupported              an engine cannot read a feature of the table; the remedy names one that can
    ├ ExternalError(scope,          retry_after)
    │   ├ Transient                 retry later
    │   │   ├ OutcomeUnknown        may have been applied: drop cached state and read again
    │   │   ├ Unauthenticated       nothing was done: the credentials are unknown or expired
    │   │   └ Forbidden             nothing was done: the principal may not do it, and perhaps no principal may
    │   └ Permanent                 table scope: dead letter; catalog or store scope: circuit breaker
    │       ├ LocationRefused
    │       ├ StoreUnfit            a store does not keep the conditions of writes (`sfn.storage.probe`)
    │       ├ UnaddressableTable    the catalog's paths cannot name that table, except by another name
    │       ├ NoVendedCredentials   there are no credentials for the files of a dropped table
    │       └ ForbiddenForTable     nothing was done: the principal may not do it here
    └ FatalError                    the process must end: fsync error, lost lock, newer schema

A lost race is an answer, not an error (`sfn.storage.PreconditionFailed`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from typing_extensions import override


class SfnError(Exception):
    """Base of all errors.

    Args:
        where: the file, table, setting or URL that is wrong.
        expected: the expected value or state.
        found: the value or state instead of it.
        remedy: advice for the reader of the message; may be empty.
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
        # By default an exception is rebuilt from positional arguments, but `__init__` takes keywords. A process pool
        # would break when it passes such an exception on.
        return _rebuild, (type(self), *self.args), vars(self)


class Rejected(SfnError):
    """A sender's request that cannot be accepted.

    Args:
        status: HTTP status of the answer, 4xx.
    """

    def __init__(self, where: str, *, status: int, expected: str, found: str, remedy: str = "") -> None:
        super().__init__(where, expected=expected, found=found, remedy=remedy)
        self.status = status


class NoCredentials(SfnError):
    """No credentials, now or at all."""


class Unreadable(SfnError):
    """The refusal of a reader, which never guesses."""


class NotFound(Unreadable):
    """No SFN file of the table in the place where the reader searched."""


class DirectoryNotFound(NotFound):
    """A directory that does not exist."""


class Ambiguous(Unreadable):
    """Several tables in the directory, and none was named."""


class TooManyFiles(Unreadable):
    """A folder with more files than a reader lists, so that its content is not fully known."""


class Dropped(Unreadable):
    """A table that was dropped, or a chain of renames that leads to no table."""


class NameTaken(Unreadable):
    """A table that was renamed, while another table has its name now."""


class RefNotFound(Unreadable):
    """A branch or tag that the table does not have."""


class CommitNotFound(Unreadable):
    """A time for which no current metadata file is known."""


class MalformedDocument(Unreadable):
    """A file that is not a valid SFN document."""


class UnknownFormatVersion(MalformedDocument):
    """An SFN document in a version of the format that this reader does not know."""


class TooManyHops(MalformedDocument):
    """SFN documents that forward to each other in a circle, or more often than a reader follows."""


class NotRelative(Unreadable):
    """An SFN document that does not give its metadata file's location relative to itself."""


class Unsafe(Unreadable):
    """A location, named by an SFN file or by a file that it leads to, that a reader does not follow."""


class Stale(Unreadable):
    """A missing file: the metadata file that an SFN file names, or one that the metadata needs."""


class WrongTable(Stale):
    """A metadata file that belongs to another table than the SFN file that names it."""


class MalformedMetadata(Unreadable):
    """A file that is no metadata file or lacks what is needed, or a file that it leads to."""


class NotPermitted(Unreadable):
    """A store's denial to read a file or list a folder."""


class Unreachable(Unreadable):
    """A store that does not answer, or a file that cannot be read for another reason than a missing permission."""


class NotInstalled(Unreadable):
    """A package that is missing or of an unsuitable version; the remedy says how to install it."""


class NotSupported(Unreadable):
    """A feature of the table that a reader cannot read; the remedy names an engine that can."""


class ErrorScope(StrEnum):
    """How far an error reaches, which decides the circuit breaker that counts it."""

    TABLE = "table"
    CATALOG = "catalog"
    STORE = "store"
    INBOX = "inbox"
    PROCESS = "process"


class ExternalError(SfnError):
    """A failure outside of the process.

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
        """Return the same error with another scope, as a transient one."""
        return Transient(
            self.where,
            scope=scope,
            expected=self.expected,
            found=self.found,
            remedy=self.remedy,
            retry_after=self.retry_after,
        )


class Transient(ExternalError):
    """A failure that may pass."""


class OutcomeUnknown(Transient):
    """A write that may or may not have been applied."""


class Unauthenticated(Transient):
    """Credentials that a store does not accept; others may work."""


class Permanent(ExternalError):
    """A failure that lasts until a person changes something."""


class LocationRefused(Permanent):
    """A location that our files must not be written to or point to."""

    def __init__(self, where: str, *, expected: str, found: str, remedy: str = "") -> None:
        super().__init__(where, scope=ErrorScope.TABLE, expected=expected, found=found, remedy=remedy)


class UnaddressableTable(Permanent):
    """A table with the catalog's separator of namespace levels inside a level, so that its path names another table.

    Args:
        addressed_levels: the levels that such a path names; none if it names none.
    """

    def __init__(
        self, where: str, *, expected: str, found: str, remedy: str = "", addressed_levels: tuple[str, ...] = ()
    ) -> None:
        super().__init__(where, scope=ErrorScope.TABLE, expected=expected, found=found, remedy=remedy)
        self.addressed_levels = addressed_levels


class NoVendedCredentials(Permanent):
    """A file of a table that its catalog does not have (any more), and so vends no credentials for."""


class Forbidden(Transient):
    """A denial to the principal, and perhaps to everyone: a policy may be wrong for a while."""


class ForbiddenForTable(Permanent):
    """A denial to the principal, while the same is permitted elsewhere."""


FORBIDDEN_ERRORS: Final = (Forbidden, ForbiddenForTable)
"""Denials. Credentials that are vended later may permit more."""


class FatalError(SfnError):
    """The loss of something that the process depends on: it must end and be started again."""


def suggest_name(word: str, known: Sequence[str]) -> str:
    """Return a remedy for an unknown name: a similar one, or all that are known."""
    if close := get_close_matches(word.lower(), known, n=1):
        return f"did you mean {close[0]}?"
    return f"known here: {', '.join(known)}" if known else ""


def pluralise(number: int, thing: str) -> str:
    """Return a count with its noun, such as `1 table` or `1,204 tables`."""
    plural = thing if number == 1 else thing.removesuffix("y") + ("ies" if thing.endswith("y") else "s")
    return f"{number:,} {plural}"


def _rebuild(kind: type[SfnError], *args: str) -> SfnError:
    return kind.__new__(kind, *args)


# ── Error bodies of the Iceberg REST protocol


class IcebergErrorModel(msgspec.Struct, frozen=True):
    """An error as a client of an Iceberg REST catalog reads it."""

    message: str
    type: str
    code: Annotated[int, msgspec.Meta(ge=400, le=600)]


class IcebergErrorResponse(msgspec.Struct, frozen=True):
    """The body of an error response."""

    error: IcebergErrorModel


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
"""Types by status: the examples of Iceberg's REST specification, else the names of Polaris, which are those of
Iceberg's and Jakarta's exceptions."""


def iceberg_error_body(status: int, message: str, kind: str | None = None) -> bytes:
    """Return the body of an error.

    Args:
        status: HTTP status code, one of `ICEBERG_ERROR_TYPES`.
        message: the message for people.
        kind: the exception that a client raises; None for the default of the status.
    """
    return msgspec.json.encode(
        IcebergErrorResponse(IcebergErrorModel(message, kind or ICEBERG_ERROR_TYPES[status], status))
    )
