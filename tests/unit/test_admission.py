"""Who is let in, by the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.app.endpoints import build_access_control
from sfn.clock import SystemClock
from sfn.errors import FatalError
from sfn.formats.event import Sender
from tests.unit.settings_ground import CATALOG, Ground

SECRET = "s3cret-of-two"  # noqa: S105 - it opens nothing


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def written(folder: Path, name: str, *tokens: str) -> Path:
    file = folder / name
    file.write_text("\n".join(tokens))
    return file


def test_senders_and_operators_are_known_by_named_tokens_and_those_of_files(ground: Ground, tmp_path: Path) -> None:
    etl, admin = written(tmp_path, "etl", "a", "b"), written(tmp_path, "admin", "c")
    text = (
        f"{CATALOG}[senders.etl]\nsecrets = {{ main = 'd' }}\nsecrets_file = '{etl}'\n[admin]\ntoken_file = '{admin}'"
    )
    admitted = build_access_control(ground.load(text), SystemClock())
    assert admitted.operators is not None
    for token in ("a", "b", "d"):
        assert admitted.senders.identify_by_token(f"Bearer {token}".encode()) == Sender("etl", {"prod": "prod"})
        assert not admitted.operators.authenticate(f"Bearer {token}".encode(), None)
    assert admitted.senders.identify_by_token(b"Bearer c") is None
    assert admitted.operators.authenticate(b"Bearer c", None)


def test_without_senders_everybody_may_send_and_nobody_may_operate(ground: Ground) -> None:
    admitted = build_access_control(ground.load(CATALOG), SystemClock())
    assert admitted.senders.identify_by_token(None) == Sender("anonymous", {"prod": "prod"})
    assert admitted.operators is None


def test_without_senders_operators_are_still_known_by_their_token(ground: Ground) -> None:
    admitted = build_access_control(ground.load(f"{CATALOG}[admin]\ntoken = 'op'"), SystemClock())
    assert admitted.operators is not None
    assert admitted.operators.authenticate(b"Bearer op", None)
    assert not admitted.operators.authenticate(None, None)


@pytest.mark.parametrize("other", ["[senders.b]\nsecrets_file = '{}'", "[admin]\ntoken_file = '{}'"])
def test_a_token_that_two_files_share_is_refused_with_both_places(ground: Ground, tmp_path: Path, other: str) -> None:
    mine, theirs = written(tmp_path, "mine", "x", SECRET), written(tmp_path, "theirs", SECRET)
    settings = ground.load(f"{CATALOG}[senders.a]\nsecrets_file = '{mine}'\n{other.format(theirs)}")
    with pytest.raises(FatalError) as caught:
        build_access_control(settings, SystemClock())
    party = "admin" if "admin" in other else "senders.b"
    assert caught.value.where == f"senders.a ({mine}:2) and {party} ({theirs}:1)"
    assert SECRET not in str(caught.value)


def test_a_sender_may_be_pinned_to_a_dialect(ground: Ground) -> None:
    text = "[senders.etl]\ndialect = 'glue'\nsecrets = { main = 'd' }\ncatalogs = { '1/eu' = 'prod' }"
    sender = build_access_control(ground.load(CATALOG + text), SystemClock()).senders.identify_by_token(b"Bearer d")
    assert sender == Sender("etl", {"1/eu": "prod"}, "glue")
