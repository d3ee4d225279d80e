"""A browser without JavaScript that opens the page for operators of an `Office`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import httpx

from sfn.admin.replicas import Replicas
from sfn.admin.routes import AdminContext, ConfiguredCatalog
from sfn.http.secrets import PartyTokens
from sfn.http.senders import OPERATORS_PARTY, Keyring, OperatorAuth
from sfn.telemetry.logs import RejectionLog
from sfn.ui.app import ui_router
from tests.support.listener import Office, Service, client

OPERATOR_TOKEN: Final = "an-operators-token"  # noqa: S105 - it opens nothing
_FORM_TOKEN: Final = re.compile(r'name="form_token" value="([^"]+)"')


def operator_tokens(tokens: Mapping[str, str]) -> OperatorAuth:
    """Return the operators with these tokens, by name."""
    return OperatorAuth(Keyring({OPERATORS_PARTY: PartyTokens(dict(tokens))}), RejectionLog(OPERATORS_PARTY))


@dataclass
class Browser:
    """A browser with a session.

    Attributes:
        client: its HTTP client.
    """

    client: httpx.AsyncClient

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


@asynccontextmanager
async def browsing(
    office: Office, tokens: Mapping[str, str] | None = None, *, signs_in: bool = True
) -> AsyncIterator[Browser]:
    """Yield a browser that is signed in with the first token."""
    tokens = tokens or {"main": OPERATOR_TOKEN}
    catalogs = {"prod": ConfiguredCatalog("rest", interest=office.interest), "dev.eu": ConfiguredCatalog("rest")}
    replicas = Replicas(office.inbox, replace(office.process), office.clock, is_shared=False)
    context = AdminContext(office.inbox, replicas, catalogs, lambda _: [], office.clock)
    async with client(Service(), ui_router(context, operator_tokens(tokens))) as opened:
        if signs_in:
            reply = await opened.post("/ui/login", data={"token": next(iter(tokens.values()))})
            assert reply.status_code == 303
        yield Browser(opened)
