"""The sections `gateway.NAME`: catalogs that clients reach through us."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from sfn.settings.kinds import AtLeastOne, CatalogNames, File, Text, Url
from sfn.settings.quantities import Duration, Size, duration_between
from sfn.settings.section import Section

ResponseTimeout = Annotated[Duration, duration_between("1s", "30m")]
"""A commit that is answered later than its intent is asked for last would not be asked for at all."""

IdleTimeout = Annotated[Duration, duration_between("0", "10m")]


class GatewaySettings(Section):
    """A catalog, and how clients reach it through us.

    Attributes:
        upstream: where the catalog's REST API begins, without `/v1`.
        catalog: our name of it; None for the one of the gateway's own name, or the only one that there is.
        catalogs: or of several behind one address: the prefix that each has its clients use, and our name of it.
        host: address of a listener of its own, where the gateway begins at `/`; None for none: it is below
            `/catalog/NAME` of the listener.
        port: of that listener; 0 is any free one.
        public_url: how clients reach it; None: as each of them says, and the proxies before us.
        ca_file: certificates (PEM) that are trusted instead of the system's; read again when it changes.
        timeout: how long the catalog may be silent.
        connections: to the catalog at once.
        idle: the longest time for which a connection may have been idle before a commit is sent over it. A
            `Keep-Alive: timeout` of the catalog replaces it. A commit on a connection that ends gets no answer.
        body_limit: most bytes of a request that are read before a connection to the catalog is taken for it, and to
            know which tables it names. Of a longer one the rest passes as it comes.
        on_inbox_failure: what becomes of a commit that the inbox does not take.
    """

    upstream: Url = Field(repr=False)
    catalog: Text | None = None
    catalogs: CatalogNames = Field(default_factory=dict)
    host: Text | None = None
    port: Annotated[int, Field(ge=0, le=65_535)] = 8086
    public_url: Url | None = None
    ca_file: File | None = None
    timeout: ResponseTimeout = timedelta(minutes=10)
    connections: AtLeastOne = 256
    idle: IdleTimeout = timedelta(seconds=0.5)
    body_limit: Size = 1 << 20
    on_inbox_failure: Literal["pass", "refuse"] = "pass"
