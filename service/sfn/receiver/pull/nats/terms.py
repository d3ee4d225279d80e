"""Where a source of NATS is, what is fetched from there, and who asks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DurableConsumer:
    """Of JetStream.

    Attributes:
        stream: must exist.
        name: of the consumer, which is made where there is none.
    """

    stream: str
    name: str


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """One source.

    Attributes:
        where: the section of the settings, for messages.
        servers: `nats://` or `tls://`, host and port; one of them is enough.
        subject: whose messages are wanted; may have wildcards.
        group: core NATS: who is in it shares the messages.
        durable: of JetStream; None for core NATS.
        ca_file: certificates (PEM) that are trusted instead of the system's; with it, nothing but TLS is spoken.
        credentials_file: who asks: a file `.creds`.
        token_file: or a token.
        user: or a name, with its `password_file`.
    """

    where: str
    servers: tuple[str, ...]
    subject: str
    group: str
    durable: DurableConsumer | None = None
    ca_file: Path | None = None
    credentials_file: Path | None = None
    token_file: Path | None = None
    user: str | None = None
    password_file: Path | None = None
