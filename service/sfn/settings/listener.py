"""The section `listener`."""

from __future__ import annotations

import ipaddress
from datetime import timedelta
from typing import Annotated

from pydantic import Field

from sfn.settings.kinds import AtLeastOne, File, Text
from sfn.settings.quantities import Duration, Size
from sfn.settings.section import Section


class ListenerSettings(Section):
    """Where events arrive.

    Attributes:
        host: the address to bind.
        port: 0 is any free one.
        body_limit: most bytes of a request's body.
        body_memory: most bytes of bodies that are held at once of clients that have not shown who they are: who signs,
            who needs no token, who asks an operator's route. Gateways, whose clients only the catalog knows, have as
            much again, and 64 KiB more for each of their connections. Never less than one of the largest bodies needs.
        drain: how long a shutdown waits for what is under way.
        queue_limit: how many hints may wait for the disk before events are answered with 503. What is
            kept of an event, 4 KiB at most, waits with its hint in memory: 40 MiB for 10,000.
        tls_certificate_file: certificates (PEM) to show, its own first; with `tls_key_file` their private key. Both are
            read again when they change; without them it speaks plain HTTP.
    """

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8085
    body_limit: Size = 1 << 20
    body_memory: Size = 32 << 20
    drain: Duration = timedelta(seconds=30)
    queue_limit: AtLeastOne = 10_000
    tls_certificate_file: File | None = None
    tls_key_file: File | None = None

    @property
    def scheme(self) -> str:
        """Of its URLs."""
        return "http" if self.tls_certificate_file is None else "https"

    @property
    def is_loopback(self) -> bool:
        """Whether it is reached from this machine alone."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone. Names but `localhost` are not looked up."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
