"""What an error under PyIceberg means: matched by its type and code, never by its text.

Types are named, not imported: whoever has tables in Glue need not have SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from sfn.catalog.library.settings import EXTRA
from sfn.catalog.refusal import CatalogFailure
from sfn.errors import ErrorScope


@dataclass(frozen=True, slots=True)
class _PyIcebergErrorMeaning:
    remedy: str
    scope: ErrorScope | None = None
    permanent: bool = False


_CREDENTIALS: Final = _PyIcebergErrorMeaning(
    "give PyIceberg valid credentials for the catalog", ErrorScope.CATALOG, permanent=True
)
_FORBIDDEN: Final = _PyIcebergErrorMeaning("grant our principal to load and list there, or exclude it", permanent=True)
_BUSY: Final = _PyIcebergErrorMeaning("lower worker.concurrency, or raise the catalog's own limit", ErrorScope.CATALOG)
_UNREACHABLE: Final = _PyIcebergErrorMeaning("see whether the catalog is up, and reached from here", ErrorScope.CATALOG)
_DATABASE: Final = _PyIcebergErrorMeaning(
    "see whether the database is up, its uri right, and nobody keeps it locked for seconds", ErrorScope.CATALOG
)
_SCHEMA: Final = _PyIcebergErrorMeaning(
    "see whether it is an Iceberg catalog's database, and our user may read it", permanent=True
)
_NAME: Final = _PyIcebergErrorMeaning("the catalog takes no such name: exclude it or rename it", permanent=True)
_MISSING: Final = _PyIcebergErrorMeaning(
    "see whether the catalog's own table is there, and its name right", ErrorScope.CATALOG
)
_INSTALL: Final = _PyIcebergErrorMeaning(EXTRA, ErrorScope.CATALOG, permanent=True)
_SERVER_ERROR: Final = _PyIcebergErrorMeaning("look into the catalog's own log")
_UNKNOWN: Final = _PyIcebergErrorMeaning(
    "see whether a property is wrong: PyIceberg stumbled over it, or over an answer"
)

_BY_TYPE: Final[Mapping[str, _PyIcebergErrorMeaning]] = {
    "botocore.exceptions.BotoCoreError": _UNREACHABLE,
    "botocore.exceptions.CredentialRetrievalError": _CREDENTIALS,
    "botocore.exceptions.NoCredentialsError": _CREDENTIALS,
    "botocore.exceptions.NoRegionError": _CREDENTIALS,
    "botocore.exceptions.ParamValidationError": _NAME,
    "botocore.exceptions.PartialCredentialsError": _CREDENTIALS,
    "botocore.exceptions.ProfileNotFound": _CREDENTIALS,
    "pyiceberg.exceptions.AuthorizationExpiredError": _CREDENTIALS,
    "pyiceberg.exceptions.BadRequestError": _NAME,
    "pyiceberg.exceptions.ForbiddenError": _FORBIDDEN,
    "pyiceberg.exceptions.NotInstalledError": _INSTALL,
    "pyiceberg.exceptions.OAuthError": _CREDENTIALS,
    "pyiceberg.exceptions.RESTError": _SERVER_ERROR,
    "pyiceberg.exceptions.TooManyRequestsError": _BUSY,
    "pyiceberg.exceptions.UnauthorizedError": _CREDENTIALS,
    "requests.exceptions.ConnectionError": _UNREACHABLE,
    "requests.exceptions.RequestException": _SERVER_ERROR,
    "requests.exceptions.Timeout": _UNREACHABLE,
    "sfn.catalog.library.opening.NoCatalogTable": _MISSING,
    "sqlalchemy.exc.InterfaceError": _DATABASE,
    "sqlalchemy.exc.OperationalError": _DATABASE,
    "sqlalchemy.exc.ProgrammingError": _SCHEMA,
    "sqlalchemy.exc.SQLAlchemyError": _SERVER_ERROR,
    "sqlalchemy.exc.TimeoutError": _DATABASE,
    "thrift.Thrift.TException": _SERVER_ERROR,
    "thrift.transport.TTransport.TTransportException": _UNREACHABLE,
}
"""The nearest class counts."""

_BY_CODE: Final[Mapping[str, _PyIcebergErrorMeaning]] = {
    "AccessDenied": _FORBIDDEN,
    "AccessDeniedException": _FORBIDDEN,
    "ExpiredToken": _CREDENTIALS,
    "ExpiredTokenException": _CREDENTIALS,
    "IncompleteSignature": _CREDENTIALS,
    "InvalidClientTokenId": _CREDENTIALS,
    "InvalidInputException": _NAME,
    "InvalidSignatureException": _CREDENTIALS,
    "MissingAuthenticationTokenException": _CREDENTIALS,
    "ProvisionedThroughputExceededException": _BUSY,
    "RequestLimitExceeded": _BUSY,
    "ResourceNotFoundException": _MISSING,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "Throttling": _BUSY,
    "ThrottlingException": _BUSY,
    "TooManyRequestsException": _BUSY,
    "UnrecognizedClientException": _CREDENTIALS,
    "ValidationException": _NAME,
}
"""AWS's common error codes, and those of Glue and DynamoDB."""

_CLIENT_ERROR: Final = "botocore.exceptions.ClientError"


def failure_of(where: str, error: Exception, *, expected: str, loading: bool = False) -> CatalogFailure:
    """Why PyIceberg gave no answer.

    Args:
        where: who was asked what.
        error: what it raised.
        expected: in words, what would have been an answer.
        loading: it was asked for a table: one that is forbidden now is not given up at once, for a grant that was
            revoked by mistake must not send every table to the dead letters.
    """
    cause, meaning = _meaning(error)
    return CatalogFailure(
        where,
        expected=expected,
        found=_describe(cause),
        remedy=meaning.remedy,
        permanent=meaning.permanent and not (loading and meaning is _FORBIDDEN),
        scope=meaning.scope,
    )


def _meaning(error: Exception) -> tuple[BaseException, _PyIcebergErrorMeaning]:
    """The first of an error and its causes that means anything. PyIceberg hides some behind errors of its own."""
    for one in _chain(error):
        for kind in type(one).__mro__:
            name = f"{kind.__module__}.{kind.__qualname__}"
            if name == _CLIENT_ERROR:
                return one, _aws_meaning(one)
            if name in _BY_TYPE:
                return one, _BY_TYPE[name]
    is_network = isinstance(error, ConnectionError | TimeoutError)
    return error, _UNREACHABLE if is_network else _UNKNOWN


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _aws_meaning(error: BaseException) -> _PyIcebergErrorMeaning:
    answer: Mapping[str, Any] = getattr(error, "response", {})
    if (meaning := _BY_CODE.get(answer.get("Error", {}).get("Code", ""))) is not None:
        return meaning
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return _BUSY if status == HTTPStatus.TOO_MANY_REQUESTS else _SERVER_ERROR


def _describe(error: BaseException) -> str:
    # SQLAlchemy's own text repeats the whole statement.
    inner = getattr(error, "orig", None) or error
    text = str(inner)
    return f"{type(inner).__name__}: {text}" if text else type(inner).__name__
