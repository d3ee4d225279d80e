"""`python -m tests.promises.quirks`: ask a catalog with each quirk, and write down on the page what comes of it."""

from __future__ import annotations

import anyio

from sfn import telemetry
from tests.promises.quirks.page import measured, page
from tests.promises.quirks.table import named
from tests.promises.quirks.world import Seen


async def main() -> None:
    """Measure, and write."""
    results: dict[str, Seen] = {}
    for name, quirk in named().items():
        results[name] = await measured(quirk)
    page(results).write()


telemetry.configure("error", "console")
anyio.run(main)
