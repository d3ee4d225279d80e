"""Who may send, who may operate, and where no token is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sfn.dialects import Sender
from sfn.receiver.keyring import Keyring
from sfn.receiver.operators import PARTY, Operators
from sfn.receiver.senders import Senders, anonymous
from sfn.receiver.tokens import TokenFile, Tokens
from sfn.telemetry.refusals import Refusals

ETL = Sender("etl", {"prod": "prod"})
SPARK = Sender("spark", {"dev": "dev"})


def shown(token: str) -> bytes:
    return b"Bearer " + token.encode()


@pytest.fixture
def keyring() -> Keyring:
    return Keyring(
        {
            "etl": Tokens({"old": "etl-old-token", "new": "etl-new-token"}),
            "spark": Tokens({"main": "spark-token"}),
            PARTY: Tokens({"token": "an-operators-token"}),
        }
    )


@pytest.fixture
def senders(keyring: Keyring) -> Senders:
    return Senders(keyring, {"etl": ETL, "spark": SPARK})


@pytest.fixture
def operators(keyring: Keyring) -> Operators:
    return Operators(keyring, Refusals("admin"))


def test_every_active_token_is_its_senders(senders: Senders) -> None:
    assert senders.verify(shown("etl-old-token")) == ETL
    assert senders.verify(shown("etl-new-token")) == ETL
    assert senders.verify(shown("spark-token")) == SPARK


@pytest.mark.parametrize(
    "authorization",
    [
        *(None, b"", b"Bearer", b"Bearer ", b"etl-old-token", b"Basic etl-old-token", b"Bearer etl-old-toke"),
        *(b"Bearer etl-old-token2", b"Bearer etl-old-token spark-token", b"Bearer etl-old-token,", b"Bearer \xff"),
    ],
)
def test_anything_else_is_nobody(senders: Senders, operators: Operators, authorization: bytes | None) -> None:
    assert senders.verify(authorization) is None
    assert not operators.admit(authorization, None)


def test_an_operator_is_no_sender_and_a_sender_no_operator(senders: Senders, operators: Operators) -> None:
    assert operators.admit(shown("an-operators-token"), None)
    assert senders.verify(shown("an-operators-token")) is None
    assert not operators.admit(shown("etl-new-token"), None)


def test_who_is_no_operator_is_logged_with_an_address_and_no_token(operators: Operators) -> None:
    with capture_logs() as logs:
        operators.admit(shown("an-operators-token"), "10.0.0.6")
        for _ in range(3):
            operators.admit(shown("gu3ss"), "10.0.0.7")
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
    tokens = Tokens({"main": "s3cret-token"}, TokenFile(file))
    keyring = Keyring({"etl": tokens})
    for thing in (tokens, tokens.active(), keyring, Senders(keyring, {"etl": ETL}), TokenFile(file)):
        assert "s3cret" not in repr(thing)
        assert "file-secret" not in repr(thing)
        assert repr(tokens.active()[0].digest) not in repr(thing)


def test_without_senders_everybody_speaks_for_all_catalogs() -> None:
    everybody = Sender("anonymous", {"dev": "dev", "prod": "prod"})
    senders = anonymous(["dev", "prod"])
    assert senders.verify(None) == everybody
    assert senders.verify(shown("whatever")) == everybody


def test_a_configured_sender_ends_anonymity(keyring: Keyring) -> None:
    senders = Senders(keyring, {"etl": ETL}, open_to=Sender("anonymous", {}))
    assert senders.verify(None) is None


def test_no_sender_and_no_anonymity_is_nobody() -> None:
    assert Senders(Keyring({}), {}).verify(shown("x")) is None
