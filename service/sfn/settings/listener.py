"""The section `listener`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from sfn.settings.kinds import AtLeastOne, Text
from sfn.settings.quantities import Duration, Size
from sfn.settings.section import Section


class ListenerSettings(Section):
    """Where events arrive.

    Attributes:
        host: the address to bind.
        port: 0 is any free one.
        body_limit: most bytes of a request's body.
        drain: how long a shutdown waits for what is under way.
        queue_limit: how many hints may wait for the disk before events are answered with 503.
    """

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8085
    body_limit: Size = 1 << 20
    drain: Duration = timedelta(seconds=30)
    queue_limit: AtLeastOne = 10_000
