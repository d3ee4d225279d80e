"""What goes wrong between us and the database, whatever the driver calls it."""

from __future__ import annotations

from typing import Final

UNREACHABLE: Final = "unreachable"
"""No SQLSTATE: the server can't be reached, or did not answer in time."""
LOST: Final = "lost"
"""No SQLSTATE: the connection ended."""
UNCERTAIN: Final = "uncertain"
"""No SQLSTATE: the connection ended, or there was no answer, while a transaction may have been committed."""
MISCONFIGURED: Final = "misconfigured"
"""Not an SQLSTATE: the driver rejects its arguments."""
LOGIN_FILE: Final = "login-file"
"""No SQLSTATE: the file with the password can't be read."""
NO_TLS: Final = "no-tls"
"""No SQLSTATE: the server speaks no TLS, which it was asked for."""
UNTRUSTED: Final = "untrusted"
"""No SQLSTATE: the server's certificate is not trusted, or is not there."""
ABORTED: Final = "25P02"
"""SQLSTATE in_failed_sql_transaction: nothing of the transaction is done."""


class PostgresFault(Exception):
    """Something failed.

    Attributes:
        code: an SQLSTATE (PostgreSQL manual, appendix A), or one of the words above.
        text: what was said of it; no secret.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class PostgresConnectionLost(PostgresFault):
    """The connection can't be used any more. What was not committed is undone."""
