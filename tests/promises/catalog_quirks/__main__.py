"""`python -m tests.promises.catalog_quirks`: ask a catalog with each quirk, and write the outcome to the page."""

from __future__ import annotations

import anyio

from sfn.telemetry import logs
from tests.promises.catalog_quirks.table import named
from tests.promises.catalog_quirks.world import Seen, measured, page


async def main() -> None:
    """Measure, and write."""
    results: dict[str, Seen] = {}
    for name, quirk in named().items():
        results[name] = await measured(quirk)
    page(results).write()


logs.configure_logging("error", "console")
anyio.run(main)
