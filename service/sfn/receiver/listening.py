"""The socket on which the service listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sfn.errors import FatalError

BACKLOG: Final = 2048
"""Connections that wait to be accepted."""


@contextmanager
def listening_socket(host: str, port: int, section: str = "listener", remedy: str = "") -> Iterator[socket.socket]:
    """A socket that listens on an address; port 0 is any free one.

    Args:
        host: an address of this machine, or a name of one.
        port: of it.
        section: that of the settings which says both, for the error.
        remedy: how else to say another address, for the error.

    Raises:
        Broken: the address is taken, not ours, or none.
    """
    name = host.removeprefix("[").removesuffix("]")
    is_six = ":" in name
    try:
        listener = socket.create_server(
            (name, port),
            family=socket.AF_INET6 if is_six else socket.AF_INET,
            backlog=BACKLOG,
            dualstack_ipv6=is_six and name == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        raise FatalError(
            f"{section} {host}:{port}",
            expected="a free address of this machine",
            found=error.strerror or type(error).__name__,
            remedy=f"{remedy or f'set {section}.host and {section}.port'}, or end what listens there",
        ) from error
    with listener:
        yield listener
