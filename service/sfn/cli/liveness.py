"""Whether a service answers."""

from __future__ import annotations

import ssl
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

from sfn.errors import SfnError

TIMEOUT: Final = 5.0
"""Seconds for the connection, and again for the answer."""


def check_answers(url: str, path: str) -> None:
    """Ask a path of a service, such as `/livez`. Proxies of the environment are passed by.

    Args:
        url: where it listens.

    Raises:
        SfnError: there is another answer than 200, or none.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise SfnError("--url", expected="a URL such as http://127.0.0.1:8085", found=repr(url))
    target = f"{parts.path.rstrip('/')}{path}"
    where = f"{parts.scheme}://{parts.netloc}{target}"
    connection = (
        _unverified_connection(parts.netloc)
        if parts.scheme == "https"
        else HTTPConnection(parts.netloc, timeout=TIMEOUT)
    )
    try:
        connection.request("GET", target)
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        found = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise SfnError(where, expected="an answer", found=found) from error
    finally:
        connection.close()
    if status != HTTPStatus.OK:
        raise SfnError(where, expected="200", found=str(status))


def _unverified_connection(authority: str) -> HTTPSConnection:
    """A connection for which any certificate will do, as nothing secret is sent.

    The clients know the service by another name than this one, and by an authority that this machine need not trust.
    """
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(authority, timeout=TIMEOUT, context=trusting)
