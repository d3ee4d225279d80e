"""All gateways of a process, each below a path of the listener, or on a listener of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias

from sfn.gateway.body import Receive
from sfn.gateway.client import ResponseWriter, Scope, Send
from sfn.gateway.proxy import Proxy

GATEWAY_PATH: Final = "/catalog/"
"""What stands before a gateway's name."""
_RAW_GATEWAY_PATH: Final = GATEWAY_PATH.encode()

GatewayApplication: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def mount_gateways(proxies: Mapping[str, Proxy], others: GatewayApplication) -> GatewayApplication:
    """An application (ASGI 3) that has the paths below `FACADE_PATH` answered by gateways, and all else by others.

    Args:
        proxies: by name.
    """

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["raw_path"].startswith(_RAW_GATEWAY_PATH):
            await others(scope, receive, send)
            return
        name = scope["raw_path"][len(_RAW_GATEWAY_PATH) :].partition(b"/")[0].decode("latin-1")
        proxy = proxies.get(name)
        if proxy is None:
            await ResponseWriter(send).send_error(HTTPStatus.NOT_FOUND, f"no gateway is called {name[:64]!a}")
        else:
            await proxy.answer(f"{GATEWAY_PATH}{name}", scope, receive, send)

    return dispatch


def standalone_gateway(proxy: Proxy) -> GatewayApplication:
    """A gateway's application for a listener of its own, where it begins at `/`."""
    return partial(proxy.answer, "")
