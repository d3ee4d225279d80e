"""Authentication of senders by token and signature."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from itertools import count
from pathlib import Path

import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from sfn.app.endpoints import build_access_control
from sfn.errors import FatalError
from sfn.formats.event import Sender
from sfn.http.secrets import PartyTokens, WatchedTokenFile
from sfn.http.senders import OPERATORS_PARTY, Keyring, OperatorAuth, Senders, VerifiedSigner, anonymous_senders
from sfn.http.signature import StandardWebhooks
from sfn.telemetry.logs import RejectionLog
from tests.support.clock import HandClock
from tests.support.settings_file import CATALOG, Ground
from tests.unit.webhooks import AT, BODY, MESSAGE, NAMES, SECRETS, SENDERS, TEXT, opened, signed_head, tokens
from tests.unit.webhooks import whose as signer_of

SECRET = "s3cret-of-two"  # noqa: S105 - it opens nothing


class Files:
    """Two parties with a file of tokens each, a third with a token in the settings."""

    def __init__(self, folder: Path) -> None:
        self.etl, self.spark = folder / "etl", folder / "spark"
        self._numbers = count()
        self.watched: dict[Path, WatchedTokenFile] = {}
        self.write(self.etl, "etl")
        self.write(self.spark, "spark")

    def opened(self, operators: str = "operators") -> Keyring:
        self.watched = {file: WatchedTokenFile(file) for file in (self.etl, self.spark)}
        parties = {"etl": PartyTokens({}, self.watched[self.etl]), "spark": PartyTokens({}, self.watched[self.spark])}
        return Keyring({**parties, "admin": PartyTokens({"token": operators})})

    def write(self, file: Path, *tokens: str) -> None:
        # The number tells files apart whose size and time are the same.
        file.write_text("\n".join([*tokens, "#" * next(self._numbers)]))
        if file in self.watched:
            self.watched[file].reload_if_changed()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def whose(keyring: Keyring, *tokens: str) -> list[str | None]:
    owners = [keyring.owner_of(b"Bearer " + token.encode()) for token in tokens]
    return [owner[0] if owner is not None else None for owner in owners]


def test_token_identifies_its_party(files: Files) -> None:
    assert whose(files.opened(), "etl", "spark", "operators", "other") == ["etl", "spark", "admin", None]


def test_token_is_reported_by_its_name(files: Files) -> None:
    assert files.opened().owner_of(b"Bearer operators") == ("admin", "token")


@pytest.mark.parametrize(("spark", "operators"), [(SECRET, "operators"), ("spark", SECRET)])
def test_shared_token_prevents_the_start(files: Files, spark: str, operators: str) -> None:
    files.write(files.etl, "etl", SECRET)
    files.write(files.spark, spark)
    with pytest.raises(FatalError) as caught:
        files.opened(operators)
    other = "admin (token)" if spark == "spark" else f"spark ({files.spark}:1)"
    assert caught.value.where == f"etl ({files.etl}:2) and {other}"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("first", ["etl", "operators"])
def test_shared_token_is_rejected_until_one_party_removes_it(files: Files, first: str) -> None:
    keyring = files.opened()
    files.write(files.spark, "spark", first)
    owner = {"etl": "etl", "operators": "admin"}[first]
    assert whose(keyring, "spark", "etl", "operators").count(None) == 1
    assert whose(keyring, first) == [None]
    files.write(files.spark, "spark")
    assert whose(keyring, first) == [owner]


def test_moved_token_is_accepted_after_the_first_party_removes_it(files: Files) -> None:
    keyring = files.opened()
    files.write(files.spark, "spark", "etl")
    files.write(files.etl, "anew")
    assert whose(keyring, "etl", "anew", "spark") == ["spark", "etl", "spark"]


def test_shared_token_is_logged_once_with_both_places_and_without_the_token(files: Files) -> None:
    files.write(files.etl, SECRET)
    keyring = files.opened()
    with capture_logs() as logs:
        for own in ("spark", "spark", "another"):
            files.write(files.spark, own, SECRET)
            whose(keyring, SECRET)
        files.write(files.spark, SECRET)
        whose(keyring, SECRET)
    told = [entry for entry in logs if entry["log_level"] == "error"]
    assert [entry["places"] for entry in told] == [
        [f"etl ({files.etl}:1)", f"spark ({files.spark}:2)"],
        [f"etl ({files.etl}:1)", f"spark ({files.spark}:1)"],
    ]
    assert "s3cret" not in str(logs)


def test_party_may_have_a_token_twice(files: Files) -> None:
    files.write(files.etl, "etl", "etl")
    both = PartyTokens({"main": "etl"}, WatchedTokenFile(files.etl))
    assert whose(Keyring({"etl": both}), "etl") == ["etl"]


ETL = Sender("etl", {"prod": "prod"})
SPARK = Sender("spark", {"dev": "dev"})


def shown(token: str) -> bytes:
    return b"Bearer " + token.encode()


@pytest.fixture
def keyring() -> Keyring:
    return Keyring(
        {
            "etl": PartyTokens({"old": "etl-old-token", "new": "etl-new-token"}),
            "spark": PartyTokens({"main": "spark-token"}),
            OPERATORS_PARTY: PartyTokens({"token": "an-operators-token"}),
        }
    )


@pytest.fixture
def senders(keyring: Keyring) -> Senders:
    return Senders(keyring, {"etl": ETL, "spark": SPARK})


@pytest.fixture
def operators(keyring: Keyring) -> OperatorAuth:
    return OperatorAuth(keyring, RejectionLog("admin"))


def test_every_active_token_identifies_its_sender(senders: Senders) -> None:
    assert senders.identify_by_token(shown("etl-old-token")) == ETL
    assert senders.identify_by_token(shown("etl-new-token")) == ETL
    assert senders.identify_by_token(shown("spark-token")) == SPARK


@pytest.mark.parametrize(
    "authorization",
    [
        *(None, b"", b"Bearer", b"Bearer ", b"etl-old-token", b"Basic etl-old-token", b"Bearer etl-old-toke"),
        *(b"Bearer etl-old-token2", b"Bearer etl-old-token spark-token", b"Bearer etl-old-token,", b"Bearer \xff"),
    ],
)
def test_other_credentials_are_rejected(senders: Senders, operators: OperatorAuth, authorization: bytes | None) -> None:
    assert senders.identify_by_token(authorization) is None
    assert not operators.authenticate(authorization, None)


def test_operators_and_senders_are_separate(senders: Senders, operators: OperatorAuth) -> None:
    assert operators.authenticate(shown("an-operators-token"), None)
    assert senders.identify_by_token(shown("an-operators-token")) is None
    assert not operators.authenticate(shown("etl-new-token"), None)


def test_rejected_operator_is_logged_with_address_but_without_token(operators: OperatorAuth) -> None:
    with capture_logs() as logs:
        operators.authenticate(shown("an-operators-token"), "10.0.0.6")
        for _ in range(3):
            operators.authenticate(shown("gu3ss"), "10.0.0.7")
    (entry,) = logs
    assert entry == {
        "event": "request refused",
        "log_level": "warning",
        "where": "admin",
        "status": 401,
        "why": "an operator's token is needed",
        "client": "10.0.0.7",
        "suppressed": 0,
    }


def test_repr_contains_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("file-secret\n")
    tokens = PartyTokens({"main": "s3cret-token"}, WatchedTokenFile(file))
    keyring = Keyring({"etl": tokens})
    for thing in (tokens, tokens.active(), keyring, Senders(keyring, {"etl": ETL}), WatchedTokenFile(file)):
        assert "s3cret" not in repr(thing)
        assert "file-secret" not in repr(thing)
        assert repr(tokens.active()[0].digest) not in repr(thing)


def test_anonymous_sender_has_all_catalogs() -> None:
    everybody = Sender("anonymous", {"dev": "dev", "prod": "prod"})
    senders = anonymous_senders(["dev", "prod"])
    assert senders.identify_by_token(None) == everybody
    assert senders.identify_by_token(shown("whatever")) == everybody


def test_configured_sender_ends_anonymous_access(keyring: Keyring) -> None:
    senders = Senders(keyring, {"etl": ETL}, open_to=Sender("anonymous", {}))
    assert senders.identify_by_token(None) is None


def test_request_is_rejected_without_senders_and_anonymous_access() -> None:
    assert Senders(Keyring({}), {}).identify_by_token(shown("x")) is None


@pytest.mark.parametrize("name", NAMES)
async def test_signer_is_identified_by_its_own_scheme(name: str) -> None:
    assert await signer_of(opened(), signed_head(name)) == name


async def test_message_id_is_returned_if_the_scheme_has_one() -> None:
    senders = opened()
    for name, message in (("etl", MESSAGE), ("polaris", None)):
        claimants = senders.identify(None, signed_head(name))
        assert isinstance(claimants, tuple)
        assert await senders.verify_signer(claimants, BODY) == VerifiedSigner(SENDERS[name], message)
        assert await senders.verify_signer(claimants, BODY + b" ") is None


async def test_signature_of_two_senders_is_rejected() -> None:
    assert await signer_of(opened(), signed_head("etl", "spark")) is None
    assert await signer_of(opened(), signed_head("etl", "polaris")) is None


async def test_event_loop_runs_between_two_possible_signers() -> None:
    senders, turns = opened(), 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    claimants = senders.identify(None, signed_head("etl", "polaris"))
    assert isinstance(claimants, tuple)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        await senders.verify_signer(claimants, BODY)
        taken = turns
        tasks.cancel_scope.cancel()
    assert (len(claimants), taken) == (4, 3)


async def test_every_active_secret_of_a_sender_is_accepted() -> None:
    new = f"whsec_{b64encode(b'another one, of 26 bytes..').decode()}"
    senders = opened(Keyring({name: tokens(name, **({"new": new} if name == "etl" else {})) for name in NAMES}))
    both = dict(signed_head("etl"))
    both[b"webhook-signature"] += b" " + dict(signed_head("etl", secret=new))[b"webhook-signature"]
    for headers in (signed_head("etl"), signed_head("etl", secret=new), [*both.items()]):
        assert await signer_of(senders, headers) == "etl"
    assert await signer_of(opened(), signed_head("etl", secret=new)) is None


async def test_signature_age_is_checked_with_the_clock() -> None:
    clock = HandClock(AT)
    senders = opened(clock=clock)
    for off, owner in ((0, "etl"), (300, "etl"), (301, None), (-300, "etl"), (-301, None)):
        clock.at = AT + timedelta(seconds=off)
        assert await signer_of(senders, signed_head("etl")) == owner


async def test_valid_token_precedes_a_signature_and_invalid_token_does_not() -> None:
    keyring = Keyring(
        {"bearer": PartyTokens({"m": "a-token"}), OPERATORS_PARTY: PartyTokens({"t": "op"})} | {"etl": tokens("etl")}
    )
    senders = Senders(
        keyring,
        {"bearer": Sender("bearer", {}), "etl": SENDERS["etl"]},
        signing={"etl": StandardWebhooks()},
        clock=HandClock(AT),
    )
    assert await signer_of(senders, signed_head("etl"), b"Bearer a-token") == "bearer"
    for wrong in (b"Bearer wrong", b"Bearer op", b""):
        assert await signer_of(senders, signed_head("etl"), wrong) == "etl"
        assert await signer_of(senders, signed_head("spark"), wrong) is None
        assert senders.identify(wrong, []) is None


@pytest.mark.parametrize("name", NAMES)
async def test_signing_secret_is_rejected_as_a_bearer_token(name: str) -> None:
    shown = b"Bearer " + SECRETS[name].encode()
    assert await signer_of(opened(), [], shown) is None
    assert Keyring({name: tokens(name)}).owner_of(shown) is None


async def test_missing_credentials_mean_the_open_sender_and_wrong_ones_are_rejected() -> None:
    everybody = Sender("local", {})
    senders = opened(open_to=everybody)
    assert senders.identify(None, [(b"host", b"x")]) is everybody
    assert senders.is_open(everybody)
    assert not senders.is_open(SENDERS["etl"])
    assert await signer_of(senders, signed_head("etl")) == "etl"
    right = dict(signed_head("etl"))
    for wrong in (
        [*{**right, b"webhook-timestamp": b"0"}.items()],
        [(b"webhook-id", b"x")],
        [(b"x-polaris-signature-256", b"")],
        [*{**right, b"webhook-signature": b"v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="}.items()],
    ):
        assert await signer_of(senders, wrong) is None
    assert senders.identify(b"Bearer wrong", []) is None


def test_repr_contains_no_signing_secret() -> None:
    keyring = Keyring({name: tokens(name) for name in NAMES})
    for thing in (tokens("etl"), tokens("etl").active(), keyring, keyring.signing_keys("etl"), opened(keyring)):
        assert "MfKQ" not in repr(thing)
        assert repr(keyring.signing_keys("etl")[0].secret) not in repr(thing)


async def test_settings_define_scheme_and_open_sender(tmp_path: Path) -> None:
    (tmp_path / "etl").write_text(SECRETS["etl"])
    text = (
        f"{CATALOG}[senders.etl]\nscheme = 'standard-webhooks'\nsecrets_file = '{tmp_path}/etl'\n"
        f"[senders.polaris]\nscheme = 'hmac-sha256'\nsignature_header = 'X-Polaris-Signature-256'\nrate_limit = 7\n"
        f"secrets = {{ main = '{TEXT}' }}\n[senders.local]\nscheme = 'none'\nrate_limit = 9\n"
    )
    admitted = build_access_control(Ground(tmp_path).load(text), HandClock(AT))
    assert [await signer_of(admitted.senders, signed_head(name)) for name in ("etl", "spark", "polaris")] == [
        "etl",
        None,
        "polaris",
    ]
    assert admitted.senders.identify(None, []) == Sender("local", {"prod": "prod"})
    assert admitted.senders.least_rate == 7
    assert len(admitted.files) == 1
