"""Templates, security headers, compression and assets of the page."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sfn.clock import Clock, format_ago, format_duration, format_seconds, format_since
from sfn.domain.identifiers import encode_identifier
from sfn.errors import pluralise
from sfn.ui.session import Session, Sessions

if TYPE_CHECKING:
    from jinja2 import Environment

PREFIX: Final = "/ui"
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every page: it runs only scripts of its own files, and no other site can frame it."""

_MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_MIN_COMPRESSED: Final = 1_000
"""Bytes below which compression saves nothing."""
_LEVEL_SEPARATOR: Final = "%1F"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages load.

    Attributes:
        content: its bytes, compressed with gzip.
        media_type: its media type.
        version: changes with the content.
    """

    content: bytes
    media_type: str
    version: str


@lru_cache
def load_asset(name: str) -> Asset | None:
    """Return an asset by its name; None if there is none. Blocks the first time."""
    media_type = _MEDIA_TYPES.get(name.rpartition(".")[2])
    file = files("sfn.ui") / "assets" / name
    if media_type is None or "/" in name or not file.is_file():
        return None
    content = file.read_bytes()
    return Asset(gzip.compress(content, 9, mtime=0), media_type, sha256(content).hexdigest()[:12])


def asset_url(name: str) -> str:
    """Return the address of an asset, which changes with its content, so that browsers may keep it."""
    asset = load_asset(name)
    if asset is None:
        raise LookupError(name)
    return f"{PREFIX}/assets/{name}?v={asset.version}"


def asset_response(request: Request, name: str) -> Response:
    """Return the response with an asset. Blocks the first time.

    Raises:
        HTTPException: 404.
    """
    asset = load_asset(name)
    if asset is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "no such file")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Content-Type": asset.media_type}
    return _compressed(request, asset.content, {**headers, **SECURITY_HEADERS})


def table_path(catalog: str, namespace: Sequence[str], name: str) -> str:
    """Return the address of the page of a table."""
    levels = _LEVEL_SEPARATOR.join(quote(level, safe="") for level in namespace) or _LEVEL_SEPARATOR
    return f"{PREFIX}/tables/{quote(catalog, safe='')}/{levels}/{quote(name, safe='')}"


class Renderer:
    """Renders pages.

    Args:
        sessions: makes the tokens of forms; None for pages without sign-in.
        clock: the wall clock.
        version: version of the service.
    """

    def __init__(self, sessions: Sessions | None, clock: Clock, version: str) -> None:
        self._sessions, self._clock, self._version = sessions, clock, version

    @cached_property
    def _environment(self) -> Environment:
        # A service that shows no page does without the 1.6 MB of the template engine.
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

        environment = Environment(
            loader=PackageLoader("sfn.ui"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.globals |= {"asset": asset_url, "table_path": table_path, "version": self._version}
        environment.filters |= {
            "seconds": format_seconds,
            "dotted": encode_identifier,
            "pluralise": pluralise,
        }
        return environment

    def page(self, request: Request, template: str, values: Mapping[str, Any], status: int = HTTPStatus.OK) -> Response:
        """Return the response with a page.

        Args:
            request: the request; its state has the session.
            template: name of the template.
            values: the values of the template, besides those of every page.
            status: HTTP status code.
        """
        now = self._clock.now()
        session: Session | None = getattr(request.state, "session", None)
        form_token = self._sessions.form_token(session) if self._sessions is not None and session is not None else ""
        shared = {
            "path": request.url.path,
            "session": session,
            "form_token": form_token,
            "now": now,
            "ago": lambda at: format_ago(at, now),
            "since": lambda at: format_since(at, now),
            "lasting": lambda at: format_duration(now - at),
            "duration": _duration,
        }
        content = self._environment.get_template(template).render(shared | dict(values))
        headers = {"Cache-Control": "no-store", "Content-Type": "text/html; charset=utf-8", **SECURITY_HEADERS}
        return _compressed(request, gzip.compress(content.encode(), 5, mtime=0), headers, status)


def _duration(time: timedelta | tuple[datetime, datetime]) -> str:
    if isinstance(time, tuple):
        return format_duration(time[1] - time[0])
    return format_duration(time)


def _compressed(request: Request, content: bytes, headers: Mapping[str, str], status: int = HTTPStatus.OK) -> Response:
    """Return a response with compressed content, decompressed for a client that does not ask for gzip."""
    vary = {"Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(content, status, {**headers, **vary, "Content-Encoding": "gzip"})
    return Response(gzip.decompress(content), status, {**headers, **vary})
