"""How a request shows who asks: the port, and what its kinds share. No `repr` of anything here shows a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from sfn.errors import SfnError

_MAX_RECENT_SECRETS: Final = 4


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """What is about to be sent.

    Attributes:
        method: in capitals.
        url: absolute and encoded, byte for byte as it is sent.
        body: all of it.
    """

    method: str
    url: str
    body: bytes = b""


class Auth(Protocol):
    """One way of showing who asks; its verbs raise `Refused` with scope catalog."""

    async def headers(self, request: AuthRequest) -> Mapping[str, str]:
        """What to send along with a request; names in lower case."""
        ...

    async def renew(self, rejected: Mapping[str, str]) -> bool:
        """Whether there is another proof to try than that in headers which were just not believed."""
        ...

    async def renew_after_denial(self, rejected: Mapping[str, str]) -> bool:
        """Return whether there is another proof to try than that in headers which were answered with 403.

        Mostly a 403 means that we may not. But some catalogs also answer 403 to a token that has expired.
        """
        ...

    def secrets(self) -> tuple[str, ...]:
        """What must not show in any message."""
        ...


def bearer_header(token: str) -> dict[str, str]:
    """The header that shows a token (RFC 6750, 2.1)."""
    return {"authorization": f"Bearer {token}"}


def recent_secrets(earlier: tuple[str, ...], *secrets: str) -> tuple[str, ...]:
    """The secrets in use first, then as many as are kept of those before, which a late reply may repeat."""
    return tuple(dict.fromkeys((*secrets, *earlier)))[:_MAX_RECENT_SECRETS]


def read_secret(file: Path) -> str:
    """The content of a file that holds one secret, without the space around it.

    Raises:
        SfnError: it cannot be read, is empty, or no header can carry it.
    """
    try:
        secret = file.read_text("utf-8").strip()
    except OSError as error:
        found = type(error).__name__
    except UnicodeDecodeError:
        found = "bytes that are no UTF-8"
    else:
        if re.fullmatch(r"[\x21-\x7e]+", secret):
            return secret
        found = "spaces or control characters in it" if secret else "an empty file"
    raise SfnError(str(file), expected="one secret in a readable file", found=found)
