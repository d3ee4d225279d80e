"""`sfn notify` and `sfn check` where senders sign."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.acceptance.command import Place, place, sfn
from tests.support.listener import TEXT, WEBHOOK

SENDERS = f"""
[senders.hook]
scheme = "standard-webhooks"
secrets_file = "{{folder}}/secrets"
catalog = "prod"
[senders.polaris]
scheme = "hmac-sha256"
signature_header = "X-Polaris-Signature-256"
secrets.main = "{TEXT}"
catalog = "prod"
[senders.local]
scheme = "none"
catalog = "prod"
"""


@pytest.fixture(name="here", scope="module")
async def fixture_here(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place]:
    folder = tmp_path_factory.mktemp("signed")
    (folder / "secrets").write_text(f"{WEBHOOK}\n")
    async with place(folder, more=SENDERS.format(folder=folder)) as made:
        yield made


@pytest.mark.parametrize("sender", ["hook", "polaris", "local"])
async def test_notify_speaks_as_a_sender_that_signs_or_shows_nothing(here: Place, sender: str) -> None:
    here.lake.commit(sender)
    told = await here.sfn("notify", f"sales.{sender}", "--sender", sender, "--wait")
    assert (told.status, told.err) == (0, "")
    await here.lake.until_published(sender)


async def test_notify_with_a_secret_that_the_service_does_not_know_says_what_to_do(here: Place, tmp_path: Path) -> None:
    configuration = tmp_path / "sfn.toml"
    configuration.write_text(here.configuration.read_text().replace(TEXT, "another text of sixteen"))
    settings = ("--config", str(configuration), "--url", here.url)
    told = await sfn("notify", "sales.orders", "--sender", "polaris", *settings)
    assert told.status == 1
    assert "expected a valid, recent signature, found status 401" in told.err
    assert "another text" not in told.err


async def test_check_names_each_sender_and_how_it_shows_who_it_is(here: Place) -> None:
    told = (await sfn("check", "--config", str(here.configuration), "--json")).json
    found = {one["where"]: one["text"] for one in told["findings"] if one["where"].startswith("senders.")}
    assert found == {
        "senders.etl": "bearer, 1 token",
        "senders.hook": "standard-webhooks, 1 secret",
        "senders.polaris": "hmac-sha256 in X-Polaris-Signature-256, 1 secret",
        "senders.local": "none: any request without a token counts as this sender's",
    }
