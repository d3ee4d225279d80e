"""Who may send, who may operate, and where no token is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sfn.formats.event import Sender
from sfn.http.secrets import PartyTokens, WatchedTokenFile
from sfn.http.senders import OPERATORS_PARTY, Keyring, OperatorAuth, Senders, anonymous_senders
from sfn.telemetry.logs import RejectionLog

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


def test_every_active_token_is_its_senders(senders: Senders) -> None:
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
def test_anything_else_is_nobody(senders: Senders, operators: OperatorAuth, authorization: bytes | None) -> None:
    assert senders.identify_by_token(authorization) is None
    assert not operators.authenticate(authorization, None)


def test_an_operator_is_no_sender_and_a_sender_no_operator(senders: Senders, operators: OperatorAuth) -> None:
    assert operators.authenticate(shown("an-operators-token"), None)
    assert senders.identify_by_token(shown("an-operators-token")) is None
    assert not operators.authenticate(shown("etl-new-token"), None)


def test_who_is_no_operator_is_logged_with_an_address_and_no_token(operators: OperatorAuth) -> None:
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
        "left_out": 0,
    }


def test_no_representation_tells_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("file-secret\n")
    tokens = PartyTokens({"main": "s3cret-token"}, WatchedTokenFile(file))
    keyring = Keyring({"etl": tokens})
    for thing in (tokens, tokens.active(), keyring, Senders(keyring, {"etl": ETL}), WatchedTokenFile(file)):
        assert "s3cret" not in repr(thing)
        assert "file-secret" not in repr(thing)
        assert repr(tokens.active()[0].digest) not in repr(thing)


def test_without_senders_everybody_speaks_for_all_catalogs() -> None:
    everybody = Sender("anonymous", {"dev": "dev", "prod": "prod"})
    senders = anonymous_senders(["dev", "prod"])
    assert senders.identify_by_token(None) == everybody
    assert senders.identify_by_token(shown("whatever")) == everybody


def test_a_configured_sender_ends_anonymity(keyring: Keyring) -> None:
    senders = Senders(keyring, {"etl": ETL}, open_to=Sender("anonymous", {}))
    assert senders.identify_by_token(None) is None


def test_no_sender_and_no_anonymity_is_nobody() -> None:
    assert Senders(Keyring({}), {}).identify_by_token(shown("x")) is None
