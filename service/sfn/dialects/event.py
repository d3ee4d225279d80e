"""What a dialect is given: one event, the request that it came in, and whose that is.

It belongs to no dialect, so that each may import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sfn.errors import Rejected

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""As ASGI gives them: names in lower case, in the order of arrival."""


@dataclass(frozen=True, slots=True)
class Sender:
    """A configured origin of events, after its secret was checked.

    Attributes:
        name: as the configuration calls it.
        catalogs: the catalogs that it may speak for: its own name of each, and ours.
        event_format: the only one that it speaks; None: whichever its events are recognised to be of.
    """

    name: str
    catalogs: Mapping[str, str]
    event_format: str | None = None


class EventRequest(NamedTuple):
    """A request whose sender is known.

    Attributes:
        path: of the request, percent-encoded as it came, without a query.
        headers: of the request.
        body: all of it.
        sender: who sent it.
    """

    path: str
    headers: Headers
    body: bytes
    sender: Sender


class Event(NamedTuple):
    """One event of a request.

    Attributes:
        request: what it came in.
        content: the JSON object; of a CloudEvent its attributes and `data`, whichever way it came.
        body: its bytes as they arrived, the first `MAX_STORED_EVENT`: what waits for the disk must fit into memory.
        at: the place of what `content` holds: in the body, a JSON pointer as URI fragment (RFC 6901, section 6); of
            attributes that came as headers `headers`.
        data_at: the place of a CloudEvent's `data`; None where the event is none.
    """

    request: EventRequest
    content: Mapping[str, object]
    body: bytes
    at: str
    data_at: str | None = None

    @property
    def sender(self) -> str:
        """The sender's name."""
        return self.request.sender.name

    @property
    def catalogs(self) -> Mapping[str, str]:
        """The catalogs that the sender may speak for: its own name of each, and ours."""
        return self.request.sender.catalogs

    @property
    def data(self) -> Mapping[str, object] | None:
        """The JSON object in a CloudEvent; None where the event is none, or holds something else."""
        data = None if self.data_at is None else self.content.get("data")
        return data if isinstance(data, dict) else None

    def has_header(self, name: bytes) -> bool:
        """Whether the request has a header of that name, in lower case."""
        return any(key == name for key, _ in self.request.headers)

    def mapped_catalog(self, external_name: str) -> str | None:
        """Our name of the catalog that the sender's events call `external_name`; None where nobody said which that
        is.
        """
        return self.catalogs.get(external_name)

    def require_catalog(self, external_name: str | None, at: str) -> str:
        """Our name of the catalog that the sender itself calls `external_name`; None is the only one it speaks for.

        Args:
            external_name: the sender's name of it.
            at: where that was said.

        Raises:
            Rejected: 422, where the sender has no such catalog, or several and named none.
        """
        catalogs = self.catalogs
        if external_name is None and len(catalogs) == 1:
            return next(iter(catalogs.values()))
        if external_name is not None and external_name in catalogs:
            return catalogs[external_name]
        raise Rejected(
            at,
            status=422,
            expected=f"one of {', '.join(catalogs)}" if catalogs else "a sender with a catalog",
            found="none" if external_name is None else "another one",
        )
