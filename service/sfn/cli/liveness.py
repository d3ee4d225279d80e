"""Whether the service that a configuration is for is alive, asked on its own machine."""

from __future__ import annotations

import ipaddress
import ssl
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final

from sfn.errors import SfnError
from sfn.settings import ListenerSettings

PATIENCE: Final = 5.0
"""Seconds for the connection, and again for the answer."""

_PATH: Final = "/livez"


def ask(listener: ListenerSettings) -> None:
    """Ask `/livez`, at the port and with the protocol that the listener is configured with.

    Raises:
        SfnError: there is another answer than 200, or none.
    """
    if listener.port == 0:
        raise SfnError("listener.port", expected="a fixed one", found="0, which is any", remedy="set it")
    host, with_tls = _reached(listener.host), getattr(listener, "tls_certificate_file", None) is not None
    url = f"{'https' if with_tls else 'http'}://{f'[{host}]' if ':' in host else host}:{listener.port}{_PATH}"
    connection = _secured(host, listener.port) if with_tls else HTTPConnection(host, listener.port, timeout=PATIENCE)
    try:
        connection.request("GET", _PATH)
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        found = getattr(error, "strerror", None) or type(error).__name__
        raise SfnError(url, expected="an answer", found=found) from error
    finally:
        connection.close()
    if status != HTTPStatus.OK:
        raise SfnError(url, expected="200", found=str(status))


def _reached(host: str) -> str:
    """The address at which this machine reaches a listener: of one on all addresses the loopback one."""
    name = host.removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    if not address.is_unspecified:
        return name
    return "127.0.0.1" if isinstance(address, ipaddress.IPv4Address) else "::1"


def _secured(host: str, port: int) -> HTTPSConnection:
    """A connection for which any certificate will do, as nothing secret is sent.

    The clients know the service by another name than this one, and by an authority that this machine need not trust.
    """
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(host, port, timeout=PATIENCE, context=trusting)
