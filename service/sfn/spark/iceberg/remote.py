"""A facade elsewhere: asked once before Spark is, whose errors are pages of Java."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import httpx
import msgspec

from sfn.errors import NotFound, NotPermitted, NotSupported, Unreachable, Unreadable
from sfn.facade.tables import DIRECTORY_NAMESPACE
from sfn.reader.metadata import PartialMetadata
from sfn.spark.asked import AsOfOrdinal, AsOfRef, ReadRequest
from sfn.spark.iceberg.settled import version_as_of

_CONFIG: Final = "config"
_PATIENCE: Final = 30.0
_REMEDY: Final = (
    "set spark.sfn.facade.uri and spark.sfn.facade.token, or unset them: then the driver has a facade itself"
)
_ERROR_BY_STATUS: Final[dict[int, type[Unreadable]]] = {
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.UNAUTHORIZED: NotPermitted,
    HTTPStatus.FORBIDDEN: NotPermitted,
}
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises of another answer than a catalog's."""


class _FacadeError(msgspec.Struct):
    message: str


class _FacadeErrorBody(msgspec.Struct):
    error: _FacadeError


class _FacadeOverrides(msgspec.Struct):
    prefix: str = ""


class _FacadeConfig(msgspec.Struct):
    overrides: _FacadeOverrides = msgspec.field(default_factory=_FacadeOverrides)


class _LoadTableResult(msgspec.Struct, rename="kebab"):
    """A `LoadTableResult` (Iceberg's REST specification)."""

    metadata_location: str
    metadata: PartialMetadata


@dataclass(frozen=True, slots=True)
class RemoteTable:
    """A table of a facade.

    Attributes:
        name: in its namespace of directories.
        version: as of `sfn.spark.iceberg.settled.version_as_of`.
    """

    name: str
    version: str | None


@dataclass(frozen=True, slots=True)
class RemoteFacade:
    """Where a facade is.

    Attributes:
        uri: the catalog's, without `/v1`.
        token: shown to it; "" for none.
    """

    uri: str
    token: str = field(default="", repr=False)

    def find_table(self, request: ReadRequest) -> RemoteTable:
        """The table, as it is shown there.

        Raises:
            NotSupported: what is asked for can't be asked there.
            NotFound, NotPermitted, Unreachable: the facade says so, or does not answer.
            RefNotFound, CommitNotFound: the table has no such branch, tag or snapshot.
        """
        if isinstance(request.as_of, AsOfOrdinal) or request.uuid is not None or request.options or request.allowed:
            raise NotSupported(
                self.uri,
                expected="what a facade elsewhere can be asked: a directory, a table, a snapshot, a time or a ref",
                found="an Ordinal, a uuid, storage_options or allowed",
                remedy="unset spark.sfn.facade.uri: the driver's own facade can; or use engine='sfn'",
            )
        name = request.directory + (f"#{'.'.join(request.table)}" if request.table else "")
        fields = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with httpx.Client(headers=fields, timeout=_PATIENCE) as client:
            prefix = _decode_config(self._get(client, _CONFIG)).overrides.prefix
            path = f"{quote(prefix, safe='')}/namespaces/{DIRECTORY_NAMESPACE[0]}/tables/{quote(name, safe='')}"
            # All of them may be megabytes.
            snapshots = "refs" if isinstance(request.as_of, AsOfRef) else "all"
            table = self._decode_table(self._get(client, f"{path}?snapshots={snapshots}"))
        return RemoteTable(name, version_as_of(request.as_of, table.metadata, table.metadata_location))

    def _decode_table(self, content: bytes) -> _LoadTableResult:
        try:
            return msgspec.json.decode(content, type=_LoadTableResult)
        except _DECODE_ERRORS as error:
            found = f"another answer: {error}"
            raise Unreachable(self.uri, expected="a facade's table", found=found, remedy=_REMEDY) from None

    def _get(self, client: httpx.Client, path: str) -> bytes:
        url = f"{self.uri.rstrip('/')}/v1/{path}"
        try:
            answer = client.get(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said = f"{type(error).__name__}: {error}"
            raise Unreachable(self.uri, expected="a facade that answers", found=said, remedy=_REMEDY) from error
        if answer.status_code == HTTPStatus.OK:
            return answer.content
        said = _error_message(answer)
        kind = _ERROR_BY_STATUS.get(answer.status_code, Unreachable) if said else Unreachable
        found = f"{answer.status_code}: {said or answer.reason_phrase}"
        if not said or path == _CONFIG:
            raise kind(self.uri, expected="a facade that answers", found=found, remedy=_REMEDY)
        # What a facade says of a table has a remedy.
        raise kind(self.uri, expected="the table", found=found)


def _decode_config(content: bytes) -> _FacadeConfig:
    try:
        return msgspec.json.decode(content, type=_FacadeConfig)
    except _DECODE_ERRORS:
        return _FacadeConfig()


def _error_message(answer: httpx.Response) -> str:
    """What a catalog says; empty where something else answers."""
    try:
        return msgspec.json.decode(answer.content, type=_FacadeErrorBody).error.message
    except _DECODE_ERRORS:
        return ""
