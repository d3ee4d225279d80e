"""The service as a real process: files of tokens that are renewed while it runs."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.integration.lake import lake
from tests.integration.process import configure, serving

SECTIONS = """
[senders.spark]
secrets_file = "{folder}/senders"
catalog = "prod"
[admin]
token_file = "{folder}/operators"
[telemetry]
metrics_token_file = "{folder}/scrapers"
"""
ROUTES = {"senders": ("POST", "/v1/events"), "operators": ("GET", "/admin/v1/status"), "scrapers": ("GET", "/metrics")}


async def test_a_token_counts_once_it_is_in_its_file_and_no_more_once_it_is_not(tmp_path: Path) -> None:
    for name in ROUTES:
        (tmp_path / name).write_text(f"{name}-first\n")
    async with lake(tmp_path) as world, serving(configure(world, SECTIONS.format(folder=tmp_path))) as daemon:

        async def status(name: str, token: str) -> int:
            method, path = ROUTES[name]
            headers = {"Authorization": f"Bearer {name}-{token}"}
            content = b"[]" if method == "POST" else None
            sent: httpx.Response = await daemon.client.request(method, path, headers=headers, content=content)
            return sent.status_code

        before = {name: await status(name, "first") for name in ROUTES}
        assert before == {"senders": 202, "operators": 200, "scrapers": 200}
        for name in ROUTES:
            (tmp_path / name).write_text(f"{name}-second\n")
            await daemon.until_logged("tokens read", files=[str(tmp_path / name)])
        assert {name: await status(name, "second") for name in ROUTES} == before
        assert {await status(name, "first") for name in ROUTES} == {401}
        assert "-second" not in daemon.log.read_text()
