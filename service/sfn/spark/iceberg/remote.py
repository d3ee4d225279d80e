"""A facade elsewhere: asked once before Spark is, whose errors are pages of Java."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import httpx
import msgspec

from sfn.errors import NotFound, NotPermitted, NotSupported, Unreachable, Unreadable
from sfn.facade.directories import NAMESPACE
from sfn.reader.metadata import Metadata
from sfn.spark.asked import Asked, Ordinal, Ref
from sfn.spark.iceberg.settled import version

_CONFIG: Final = "config"
_PATIENCE: Final = 30.0
_SET: Final = "set spark.sfn.facade.uri and spark.sfn.facade.token, or unset them: then the driver has a facade itself"
_REFUSALS: Final[dict[int, type[Unreadable]]] = {
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.UNAUTHORIZED: NotPermitted,
    HTTPStatus.FORBIDDEN: NotPermitted,
}
_OTHER: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises of another answer than a catalog's."""


class _Error(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Error


class _Overrides(msgspec.Struct):
    prefix: str = ""


class _Configuration(msgspec.Struct):
    overrides: _Overrides = msgspec.field(default_factory=_Overrides)


class _Table(msgspec.Struct, rename="kebab"):
    """A `LoadTableResult` (Iceberg's REST specification)."""

    metadata_location: str
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Shown:
    """A table of a facade.

    Attributes:
        name: in its namespace of directories.
        version: as of `sfn.spark.iceberg.settled.version`.
    """

    name: str
    version: str | None


@dataclass(frozen=True, slots=True)
class Remote:
    """Where a facade is.

    Attributes:
        uri: the catalog's, without `/v1`.
        token: shown to it; "" for none.
    """

    uri: str
    token: str = field(default="", repr=False)

    def shown(self, asked: Asked) -> Shown:
        """The table, as it is shown there.

        Raises:
            NotSupported: what is asked for can't be asked there.
            NotFound, NotPermitted, Unreachable: the facade says so, or does not answer.
            RefNotFound, CommitNotFound: the table has no such branch, tag or snapshot.
        """
        if isinstance(asked.state, Ordinal) or asked.uuid is not None or asked.options or asked.allowed:
            raise NotSupported(
                self.uri,
                expected="what a facade elsewhere can be asked: a directory, a table, a snapshot, a time or a ref",
                found="an Ordinal, a uuid, storage_options or allowed",
                remedy="unset spark.sfn.facade.uri: the driver's own facade can; or use engine='sfn'",
            )
        name = asked.directory + (f"#{'.'.join(asked.table)}" if asked.table else "")
        fields = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with httpx.Client(headers=fields, timeout=_PATIENCE) as client:
            prefix = _configured(self._asked(client, _CONFIG)).overrides.prefix
            path = f"{quote(prefix, safe='')}/namespaces/{NAMESPACE[0]}/tables/{quote(name, safe='')}"
            # All of them may be megabytes.
            snapshots = "refs" if isinstance(asked.state, Ref) else "all"
            table = self._table(self._asked(client, f"{path}?snapshots={snapshots}"))
        return Shown(name, version(asked.state, table.metadata, table.metadata_location))

    def _table(self, content: bytes) -> _Table:
        try:
            return msgspec.json.decode(content, type=_Table)
        except _OTHER as error:
            found = f"another answer: {error}"
            raise Unreachable(self.uri, expected="a facade's table", found=found, remedy=_SET) from None

    def _asked(self, client: httpx.Client, path: str) -> bytes:
        url = f"{self.uri.rstrip('/')}/v1/{path}"
        try:
            answer = client.get(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said = f"{type(error).__name__}: {error}"
            raise Unreachable(self.uri, expected="a facade that answers", found=said, remedy=_SET) from error
        if answer.status_code == HTTPStatus.OK:
            return answer.content
        said = _said(answer)
        kind = _REFUSALS.get(answer.status_code, Unreachable) if said else Unreachable
        found = f"{answer.status_code}: {said or answer.reason_phrase}"
        if not said or path == _CONFIG:
            raise kind(self.uri, expected="a facade that answers", found=found, remedy=_SET)
        # What a facade says of a table has a remedy.
        raise kind(self.uri, expected="the table", found=found)


def _configured(content: bytes) -> _Configuration:
    try:
        return msgspec.json.decode(content, type=_Configuration)
    except _OTHER:
        return _Configuration()


def _said(answer: httpx.Response) -> str:
    """What a catalog says; empty where something else answers."""
    try:
        return msgspec.json.decode(answer.content, type=_Refusal).error.message
    except _OTHER:
        return ""
