"""Google's access tokens, found in the same places where Google's own tools find them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import google.auth
from anyio import to_thread
from google.auth.credentials import Credentials, TokenState
from google.auth.exceptions import GoogleAuthError, RefreshError
from google.auth.transport.requests import Request

from sfn.errors import NoCredentials

SEARCH_TIMEOUT: Final = 20.0
"""Seconds for a new token. Google's library checks three times whether this machine is one of Google's."""
ANSWER_TIMEOUT: Final = 10.0
"""Seconds for one request to the server that issues tokens."""
RETRY_AFTER: Final = 5.0
"""Seconds until the next attempt if a new token could not be had and the old one is still valid."""
_CREDENTIALS_REMEDY: Final = (
    "set GOOGLE_APPLICATION_CREDENTIALS, log in, or give this workload a service account "
    "(`gcloud auth application-default print-access-token` shows what is found)"
)
_CODE: Final = re.compile(r"[\w.-]{1,64}")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_FAILURES: Final = (GoogleAuthError, OSError, ValueError, KeyError, TypeError, AttributeError)
"""Errors of a search. The last four come from files and servers with content that Google's library does not expect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleIdentity:
    """The identity that requests to Google carry.

    Attributes:
        token: a fixed access token, which another program renews; None for none.
        file: a service account's key, or another file that Google's library accepts; None for the application default
            credentials: the file that the environment names, gcloud's, workload identity, the metadata service.
    """

    token: str | None = field(default=None, repr=False)
    file: Path | None = None


class GoogleCredentialChain:
    """The tokens of one identity, renewed some minutes before they expire.

    Concurrent callers share one answer. Credentials are searched again for each token, so that a replaced key is seen.

    Args:
        identity: the identity.
        scopes: scopes of the tokens, for identities that can choose them.
        limit: seconds for a new token.
    """

    def __init__(self, identity: GoogleIdentity, scopes: Sequence[str], *, limit: float = SEARCH_TIMEOUT) -> None:
        self._identity, self._scopes, self._limit = identity, tuple(scopes), limit
        self._refresh_lock = anyio.Lock()
        self._refreshes, self._next_refresh_at = 0, 0.0
        self._credentials: Credentials | None = None
        self._failure = ""

    async def token(self) -> str:
        """Return a valid token.

        Raises:
            NoCredentials: there is no token.
        """
        token = self._identity.token
        if token is None:
            token = await self._current()
        if _TOKEN.fullmatch(token) is None:
            raise self._no_credentials_error("a token with characters that a header cannot carry")
        return token

    async def _current(self) -> str:
        if self._is_due():
            refreshes = self._refreshes
            async with self._refresh_lock:
                if refreshes == self._refreshes:
                    await self._refresh()
        if self._credentials is None or self._credentials.token_state is TokenState.INVALID:
            raise self._no_credentials_error(
                self._failure or "a token that was expired on arrival: check this machine's clock"
            )
        return str(self._credentials.token)

    def _is_due(self) -> bool:
        state = TokenState.INVALID if self._credentials is None else self._credentials.token_state
        if state is TokenState.STALE:
            # The old token is still valid, so only one caller needs to wait for the next.
            return anyio.current_time() >= self._next_refresh_at and not self._refresh_lock.locked()
        return state is TokenState.INVALID

    async def _refresh(self) -> None:
        try:
            with anyio.fail_after(self._limit):
                find = partial(_fetch_credentials, self._identity.file, self._scopes)
                self._credentials = await to_thread.run_sync(find, abandon_on_cancel=True)
        except _FAILURES as error:
            self._failure = f"none within {self._limit:g} s" if isinstance(error, TimeoutError) else _error_text(error)
        else:
            self._failure = ""
        self._refreshes += 1
        self._next_refresh_at = anyio.current_time() + RETRY_AFTER

    def _no_credentials_error(self, found: str) -> NoCredentials:
        where, remedy = "Google's application default credentials", _CREDENTIALS_REMEDY
        if self._identity.token is not None:
            where, remedy = "the access token", "renew it"
        elif self._identity.file is not None:
            where, remedy = str(self._identity.file), "check that file, and whether the account may still use it"
        return NoCredentials(where, expected="credentials", found=found, remedy=remedy)


def _fetch_credentials(file: Path | None, scopes: Sequence[str]) -> Credentials:
    """Return credentials with a new token. Reads files, and asks servers."""
    credentials: Any = _default_credentials(scopes) if file is None else _load_credentials(file, scopes)
    credentials.refresh(partial(Request(), timeout=ANSWER_TIMEOUT))
    found: Credentials = credentials
    return found


def _default_credentials(scopes: Sequence[str]) -> Credentials:
    credentials, _ = google.auth.default(scopes=scopes)
    return credentials


def _load_credentials(file: Path, scopes: Sequence[str]) -> Any:  # noqa: ANN401 - as the library has it
    load: Any = google.auth.load_credentials_from_file
    with warnings.catch_warnings():
        # The library warns of files from unknown sources; the settings are the source of this one.
        warnings.simplefilter("ignore", DeprecationWarning)
        return load(str(file), scopes=scopes)[0]


def _error_text(error: Exception) -> str:
    """Describe an error without a server's message, which may repeat a secret."""
    answer = error.args[1] if isinstance(error, RefreshError) and len(error.args) > 1 else None
    code = answer.get("error") if isinstance(answer, Mapping) else None
    if isinstance(code, str) and _CODE.fullmatch(code):
        return f"{code} from Google"
    return type(error).__name__
