"""The sections `pull.NAME`: where events are fetched from."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from sfn.settings import texts
from sfn.settings.bound import EventOrigin
from sfn.settings.kinds import File, Text
from sfn.settings.quantities import Size

_PORT: Final = 4222
"""Where a URL names none."""
_WORD: Final = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]{1,200}")
"""A level of a subject, or a name (NATS documentation, "Subject-Based Messaging" and "Naming Streams")."""


def _validate_server(value: str) -> str:
    """Where a server is: no user, no password, no path."""
    try:
        parts = urlsplit(value)
        right = parts.scheme in {"nats", "tls"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        right = False
    else:
        right = right and "@" not in value and not (parts.path or parts.query or parts.fragment)
    if not right:
        raise ValueError("nats://host:port or tls://host:port: a user and a password have keys of their own")
    return value


def _validate_subject(value: str) -> str:
    *above, last = value.split(".")
    if not all(level == "*" or _WORD.fullmatch(level) for level in above) or not (
        last in {"*", ">"} or _WORD.fullmatch(last)
    ):
        raise ValueError("a subject such as lakekeeper.events, orders.* or orders.>")
    return value


def _validate_name(value: str) -> str:
    if not _WORD.fullmatch(value):
        raise ValueError("a name without spaces, dots, slashes, `*` and `>`")
    return value


_Servers: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(_validate_server)], ...],
    BeforeValidator(texts.parse_array),
    Field(min_length=1),
]
_Name: TypeAlias = Annotated[str, AfterValidator(_validate_name)]


class PullSettings(EventOrigin):
    """A source of events.

    Attributes:
        type: how it is spoken to.
        servers: where it answers; one of them is enough. `tls://` is refused by a server without TLS.
        subject: whose messages are events; may have wildcards.
        queue: the group of those who share the messages of core NATS.
        stream: of JetStream, with `durable` the consumer of it that all replicas share; without both it is core NATS.
        ca_file: certificates (PEM) that are trusted instead of the system's; read for each new connection, as are the
            next ones.
        credentials_file: who asks: a file `.creds`.
        token_file: or a token.
        user: or a name, with its `password_file`.
        body_limit: most bytes of a message; None for the listener's.
    """

    type: Literal["nats"] = "nats"
    servers: _Servers
    subject: Annotated[Text, AfterValidator(_validate_subject)]
    queue: _Name = "sfn"
    stream: _Name | None = None
    durable: _Name | None = None
    ca_file: File | None = None
    credentials_file: File | None = None
    token_file: File | None = None
    user: Text | None = None
    password_file: File | None = None
    body_limit: Size | None = None

    @property
    def addresses(self) -> frozenset[tuple[str, int]]:
        """Host and port of each server."""
        parts = [urlsplit(server) for server in self.servers]
        return frozenset((part.hostname or "", part.port or _PORT) for part in parts)

    @property
    def is_encrypted(self) -> bool:
        """Whether no server without TLS is spoken to."""
        return self.ca_file is not None or all(server.startswith("tls:") for server in self.servers)
