"""Which sender a signature is of: exactly one, and never by a secret that two of them have."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from pathlib import Path

import anyio.lowlevel
import pytest

from sfn.app.endpoints import build_access_control
from sfn.formats.event import Sender
from sfn.http.secrets import PartyTokens
from sfn.http.senders import OPERATORS_PARTY, Keyring, Senders, VerifiedSigner
from sfn.http.signature import StandardWebhooks
from tests.unit.settings_ground import CATALOG, Ground
from tests.unit.signers import NAMES, SECRETS, SENDERS, TEXT, Stopped, head, opened, tokens, whose
from tests.unit.webhooks import AT, BODY, MESSAGE


@pytest.mark.parametrize("name", NAMES)
async def test_who_signed_it_is_the_sender_and_each_has_its_manner(name: str) -> None:
    assert await whose(opened(), head(name)) == name


async def test_the_id_of_a_message_is_told_where_there_is_one() -> None:
    senders = opened()
    for name, message in (("etl", MESSAGE), ("polaris", None)):
        claimants = senders.identify(None, head(name))
        assert isinstance(claimants, tuple)
        assert await senders.verify_signer(claimants, BODY) == VerifiedSigner(SENDERS[name], message)
        assert await senders.verify_signer(claimants, BODY + b" ") is None


async def test_what_two_senders_signed_is_nobodys() -> None:
    assert await whose(opened(), head("etl", "spark")) is None
    assert await whose(opened(), head("etl", "polaris")) is None


async def test_others_have_their_turn_between_two_senders_that_it_may_be() -> None:
    senders, turns = opened(), 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    claimants = senders.identify(None, head("etl", "polaris"))
    assert isinstance(claimants, tuple)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        await senders.verify_signer(claimants, BODY)
        taken = turns
        tasks.cancel_scope.cancel()
    assert (len(claimants), taken) == (4, 3)


async def test_several_secrets_of_one_sender_are_active_and_may_all_have_signed() -> None:
    new = f"whsec_{b64encode(b'another one, of 26 bytes..').decode()}"
    senders = opened(Keyring({name: tokens(name, **({"new": new} if name == "etl" else {})) for name in NAMES}))
    both = dict(head("etl"))
    both[b"webhook-signature"] += b" " + dict(head("etl", secret=new))[b"webhook-signature"]
    for headers in (head("etl"), head("etl", secret=new), [*both.items()]):
        assert await whose(senders, headers) == "etl"
    assert await whose(opened(), head("etl", secret=new)) is None


async def test_a_signature_is_of_now_by_the_clock() -> None:
    clock = Stopped()
    senders = opened(clock=clock)
    for off, owner in ((0, "etl"), (300, "etl"), (301, None), (-300, "etl"), (-301, None)):
        clock.at = AT + timedelta(seconds=off)
        assert await whose(senders, head("etl")) == owner


async def test_a_valid_token_goes_before_a_signature_and_a_wrong_one_leaves_it_its_word() -> None:
    keyring = Keyring(
        {"bearer": PartyTokens({"m": "a-token"}), OPERATORS_PARTY: PartyTokens({"t": "op"})} | {"etl": tokens("etl")}
    )
    senders = Senders(
        keyring,
        {"bearer": Sender("bearer", {}), "etl": SENDERS["etl"]},
        signing={"etl": StandardWebhooks()},
        clock=Stopped(),
    )
    assert await whose(senders, head("etl"), b"Bearer a-token") == "bearer"
    for wrong in (b"Bearer wrong", b"Bearer op", b""):
        assert await whose(senders, head("etl"), wrong) == "etl"
        assert await whose(senders, head("spark"), wrong) is None
        assert senders.identify(wrong, []) is None


@pytest.mark.parametrize("name", NAMES)
async def test_a_secret_that_signs_opens_nothing_where_it_is_shown(name: str) -> None:
    shown = b"Bearer " + SECRETS[name].encode()
    assert await whose(opened(), [], shown) is None
    assert Keyring({name: tokens(name)}).owner_of(shown) is None


async def test_who_shows_nothing_is_the_open_sender_and_who_shows_something_wrong_is_nobody() -> None:
    everybody = Sender("local", {})
    senders = opened(open_to=everybody)
    assert senders.identify(None, [(b"host", b"x")]) is everybody
    assert senders.is_open(everybody)
    assert not senders.is_open(SENDERS["etl"])
    assert await whose(senders, head("etl")) == "etl"
    right = dict(head("etl"))
    for wrong in (
        [*{**right, b"webhook-timestamp": b"0"}.items()],
        [(b"webhook-id", b"x")],
        [(b"x-polaris-signature-256", b"")],
        [*{**right, b"webhook-signature": b"v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="}.items()],
    ):
        assert await whose(senders, wrong) is None
    assert senders.identify(b"Bearer wrong", []) is None


def test_no_representation_tells_a_secret_that_signs() -> None:
    keyring = Keyring({name: tokens(name) for name in NAMES})
    for thing in (tokens("etl"), tokens("etl").active(), keyring, keyring.signing_keys("etl"), opened(keyring)):
        assert "MfKQ" not in repr(thing)
        assert repr(keyring.signing_keys("etl")[0].secret) not in repr(thing)


async def test_settings_say_how_each_sender_signs_and_who_need_not(tmp_path: Path) -> None:
    (tmp_path / "etl").write_text(SECRETS["etl"])
    text = (
        f"{CATALOG}[senders.etl]\nscheme = 'standard-webhooks'\nsecrets_file = '{tmp_path}/etl'\n"
        f"[senders.polaris]\nscheme = 'hmac-sha256'\nsignature_header = 'X-Polaris-Signature-256'\nrate_limit = 7\n"
        f"secrets = {{ main = '{TEXT}' }}\n[senders.local]\nscheme = 'none'\nrate_limit = 9\n"
    )
    admitted = build_access_control(Ground(tmp_path).load(text), Stopped())
    assert [await whose(admitted.senders, head(name)) for name in ("etl", "spark", "polaris")] == [
        "etl",
        None,
        "polaris",
    ]
    assert admitted.senders.identify(None, []) == Sender("local", {"prod": "prod"})
    assert admitted.senders.least_rate == 7
    assert len(admitted.files) == 1
