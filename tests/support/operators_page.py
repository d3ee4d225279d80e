"""A browser without JavaScript at the page for operators of an `Office`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from typing import Final

import httpx
from typing_extensions import override

from sfn.http.secrets import PartyTokens
from sfn.http.senders import OPERATORS_PARTY, Keyring, OperatorAuth
from sfn.telemetry.logs import RejectionLog
from sfn.ui.app import ui_router
from sfn.ui.home import home_router
from tests.support.listener import Office, Service, client

OPERATOR_TOKEN: Final = "an-operators-token"  # noqa: S105 - it opens nothing
_FORM_TOKEN: Final = re.compile(r'name="form_token" value="([^"]+)"')


def operator_tokens(tokens: Mapping[str, str]) -> OperatorAuth:
    """Return the operators with these tokens, by name."""
    return OperatorAuth(Keyring({OPERATORS_PARTY: PartyTokens(dict(tokens))}), RejectionLog(OPERATORS_PARTY))


@dataclass(frozen=True)
class Page:
    """A page as a browser shows it.

    Attributes:
        reply: the response.
    """

    reply: httpx.Response

    @property
    def status(self) -> int:
        return self.reply.status_code

    @property
    def html(self) -> str:
        return self.reply.text

    @property
    def text(self) -> str:
        """The text without elements, each sequence of white space as one space."""
        body = self.html.partition("</head>")[2]
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())

    @property
    def fields(self) -> dict[str, str]:
        """The hidden fields of its last form."""
        return _read(self.html).forms[-1]

    @property
    def elements(self) -> list[tuple[str, dict[str, str]]]:
        """All elements with their attributes."""
        return _read(self.html).elements


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.forms: list[dict[str, str]] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag == "form":
            self.forms.append({})
        if tag == "input" and found.get("type") == "hidden":
            self.forms[-1][found["name"]] = found["value"]


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    return reader


@dataclass(frozen=True)
class Browser:
    """Opens pages and sends forms.

    Attributes:
        client: its connection.
    """

    client: httpx.AsyncClient

    async def get(self, path: str, **fields: str | int) -> Page:
        """Open a page."""
        return Page(await self.client.get(path, params=fields or None))

    async def page(self, path: str, query: Mapping[str, str] | None = None, status: int = 200) -> str:
        """Return the HTML of a page."""
        reply = await self.client.get(path, params=query)
        assert reply.status_code == status, reply.text
        return reply.text

    async def form_token(self, path: str) -> str:
        """Return the token of a form of a page."""
        found = _FORM_TOKEN.search(await self.page(path))
        assert found is not None
        return found[1]

    async def send(self, page: str, action: str, **fields: str) -> httpx.Response:
        """Send a form of a page."""
        return await self.client.post(action, data={"form_token": await self.form_token(page), **fields})

    async def submit(self, page: Page, path: str, **fields: str) -> Page:
        """Send the last form of a page with more fields, and follow its redirect."""
        reply = await self.client.post(path, data={**page.fields, **fields})
        if reply.status_code == 303:
            return await self.get(reply.headers["location"])
        return Page(reply)


@asynccontextmanager
async def browsing(
    office: Office, tokens: Mapping[str, str] | None = None, *, signs_in: bool = True
) -> AsyncIterator[Browser]:
    """A browser at a listener with the pages and the admin API of an office, signed in with the first token."""
    tokens = tokens or {"main": OPERATOR_TOKEN}
    service = Service(recent=office.process.recent)
    home = home_router(office.clock, "1.2.3", has_operators=True)
    pages = ui_router(office.context(), operator_tokens(tokens))
    async with client(service, home, pages, office.router()) as connection:
        connection.headers["Accept"] = "text/html"
        if signs_in:
            reply = await connection.post("/ui/login", data={"token": next(iter(tokens.values()))})
            assert reply.status_code == 303, reply.text
        yield Browser(connection)
