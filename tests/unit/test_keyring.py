"""Whose a token is: of one that two parties have, nobody's."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sfn.errors import FatalError
from sfn.http.secrets import PartyTokens, WatchedTokenFile
from sfn.http.senders import Keyring

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


def test_a_token_is_its_partys(files: Files) -> None:
    assert whose(files.opened(), "etl", "spark", "operators", "other") == ["etl", "spark", "admin", None]


def test_a_token_is_known_by_its_name(files: Files) -> None:
    assert files.opened().owner_of(b"Bearer operators") == ("admin", "token")


@pytest.mark.parametrize(("spark", "operators"), [(SECRET, "operators"), ("spark", SECRET)])
def test_a_token_of_two_parties_stops_the_start(files: Files, spark: str, operators: str) -> None:
    files.write(files.etl, "etl", SECRET)
    files.write(files.spark, spark)
    with pytest.raises(FatalError) as caught:
        files.opened(operators)
    other = "admin (token)" if spark == "spark" else f"spark ({files.spark}:1)"
    assert caught.value.where == f"etl ({files.etl}:2) and {other}"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("first", ["etl", "operators"])
def test_one_that_comes_to_be_of_two_parties_is_nobodys_until_it_is_one_partys_again(files: Files, first: str) -> None:
    keyring = files.opened()
    files.write(files.spark, "spark", first)
    owner = {"etl": "etl", "operators": "admin"}[first]
    assert whose(keyring, "spark", "etl", "operators").count(None) == 1
    assert whose(keyring, first) == [None]
    files.write(files.spark, "spark")
    assert whose(keyring, first) == [owner]


def test_one_that_moves_to_another_party_is_that_partys_once_the_first_let_go_of_it(files: Files) -> None:
    keyring = files.opened()
    files.write(files.spark, "spark", "etl")
    files.write(files.etl, "anew")
    assert whose(keyring, "etl", "anew", "spark") == ["spark", "etl", "spark"]


def test_it_is_logged_once_with_both_places_and_without_the_token(files: Files) -> None:
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


def test_a_party_may_have_a_token_twice(files: Files) -> None:
    files.write(files.etl, "etl", "etl")
    both = PartyTokens({"main": "etl"}, WatchedTokenFile(files.etl))
    assert whose(Keyring({"etl": both}), "etl") == ["etl"]
