"""The address of the database, and its name in messages."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from sfn.inbox.postgres.errors import LOGIN_FILE, UNTRUSTED, PostgresFault

CONNECTED_WITHIN: Final = 5.0
"""Seconds, unless the URL says `connect_timeout`."""
_CERTIFICATES: Final = frozenset({"sslcert", "sslcrl", "sslkey", "sslrootcert"})
_SYSTEM: Final = "system"
"""The value of `sslrootcert` that stands for the certificates of the system, as in libpq 16."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A database of a server, or of one of several, as libpq's URLs name it (PostgreSQL manual, section 34.1.1.2).

    Attributes:
        url: may hold a password.
        password_file: file with the password; read for each new connection.
    """

    url: str = field(repr=False)
    password_file: Path | None = None

    @property
    def name(self) -> str:
        """The URL without anything that may be secret."""
        parts = urlsplit(self.url)
        login, _, hosts = parts.netloc.rpartition("@")
        user = login.partition(":")[0]
        return f"postgresql://{user}@{hosts}{parts.path}" if user else f"postgresql://{hosts}{parts.path}"

    @property
    def patience(self) -> float:
        """Seconds for an attempt to connect."""
        return float(self._options().get("connect_timeout", CONNECTED_WITHIN))

    def arguments(self) -> dict[str, Any]:
        """Return the connection parameters for the driver.

        Raises:
            PostgresFault: the file with the password, or a certificate, can't be read.
        """
        options = self._options()
        options.pop("connect_timeout", None)
        driver_arguments: dict[str, Any] = {}
        if options.get("sslrootcert") == _SYSTEM:
            del options["sslrootcert"]
            driver_arguments["ssl"] = ssl.create_default_context()
        if self.password_file is not None:
            driver_arguments["password"] = _read(self.password_file, LOGIN_FILE).rstrip("\r\n")
        for option in sorted(_CERTIFICATES & options.keys()):
            _read(Path(options[option]), UNTRUSTED)
        return {"dsn": urlsplit(self.url)._replace(query=urlencode(options)).geturl(), **driver_arguments}

    def _options(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.url).query))


def _read(file: Path, code: str) -> str:
    """Return the content of a file; the driver would report a missing file as a server that can't be reached."""
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise PostgresFault(code, f"{file}: {why}") from None
