"""Tokens: how they are shown and compared, and files of them that are read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sfn.errors import FatalError
from sfn.http.secrets import MAX_FILE, AcceptedToken, PartyTokens, WatchedTokenFile, bearer_token, index_of_presented


def test_the_scheme_is_read_as_http_wants_it() -> None:
    assert bearer_token(b"bearer  x") == b"x"
    assert bearer_token(b" BEARER x ") == b"x"
    assert bearer_token(b"Bearerx") is None


def test_all_tokens_are_compared_whichever_matches() -> None:
    asked: list[int] = []
    tokens = [AcceptedToken.from_secret(str(number), str(number)) for number in range(4)]

    def seen() -> Iterator[AcceptedToken]:
        for index, token in enumerate(tokens):
            asked.append(index)
            yield token

    assert index_of_presented(seen(), b"1") == 1
    assert asked == [0, 1, 2, 3]


class Rotation:
    """A file of tokens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("# tokens of spring\n\nfirst\n  second \r\n")
        self.file = WatchedTokenFile(path)
        self.tokens = PartyTokens({}, self.file)

    def write(self, text: str | bytes) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_bytes(text if isinstance(text, bytes) else text.encode())
        beside.replace(self.path)

    def admits(self, *tokens: str) -> bool:
        return all(index_of_presented(self.tokens.active(), token.encode()) is not None for token in tokens)


@pytest.fixture
def rotation(tmp_path: Path) -> Rotation:
    return Rotation(tmp_path / "tokens")


def test_a_file_holds_one_token_a_line_and_each_is_called_by_its_place(rotation: Rotation) -> None:
    assert rotation.admits("first", "second")
    assert not rotation.admits("#")
    assert not rotation.admits("tokens")
    assert [token.name for token in rotation.file.tokens()] == [f"{rotation.path}:3", f"{rotation.path}:4"]


def test_a_new_file_counts_once_somebody_looked(rotation: Rotation) -> None:
    rotation.write("third\n")
    assert rotation.admits("first")
    assert not rotation.admits("third")
    rotation.file.reload_if_changed()
    assert rotation.admits("third")
    assert not rotation.admits("first")


def test_a_file_written_in_place_is_read_again(rotation: Rotation) -> None:
    content = rotation.path.read_text()
    status = rotation.path.stat()
    rotation.path.write_text(content.replace("first", "tsrif"))
    os.utime(rotation.path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    rotation.file.reload_if_changed()
    assert rotation.admits("tsrif")


def test_an_unchanged_file_is_not_read_again(rotation: Rotation) -> None:
    rotation.file.reload_if_changed()
    before = rotation.file.tokens()
    rotation.file.reload_if_changed()
    assert rotation.file.tokens() is before


@pytest.mark.parametrize(
    "broken", ["", "# none\n\n", "two words\n", "ümlaut\n", b"\xff\n", "good\nbad\x01\n", "x" * (MAX_FILE + 1)]
)
def test_a_broken_file_keeps_the_old_tokens_and_is_logged_once(rotation: Rotation, broken: str | bytes) -> None:
    rotation.write(broken)
    with capture_logs() as logs:
        for _ in range(3):
            rotation.file.reload_if_changed()
            assert rotation.admits("first", "second")
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert "bad" not in str(logs)
    rotation.write("third\n")
    rotation.file.reload_if_changed()
    assert rotation.admits("third")


def test_a_file_that_went_away_keeps_the_old_tokens(rotation: Rotation) -> None:
    rotation.path.unlink()
    rotation.file.reload_if_changed()
    assert rotation.admits("first")
    rotation.write("# tokens of summer\nthird\n")
    rotation.file.reload_if_changed()
    assert rotation.admits("third")
    assert not rotation.admits("first")


def test_what_is_wrong_again_after_it_was_right_is_logged_again(rotation: Rotation) -> None:
    aside = rotation.path.with_suffix(".aside")
    with capture_logs() as logs:
        for _ in range(2):
            rotation.path.rename(aside)
            rotation.file.reload_if_changed()
            aside.rename(rotation.path)
            rotation.file.reload_if_changed()
    assert [entry["event"] for entry in logs] == ["tokens kept"] * 2


def test_a_file_that_never_was_right_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="tokens"):
        WatchedTokenFile(tmp_path / "tokens")
    (tmp_path / "tokens").write_text("# nothing\n")
    with pytest.raises(FatalError, match="no token"):
        WatchedTokenFile(tmp_path / "tokens")


def test_named_tokens_and_those_of_the_file_are_active_together(rotation: Rotation) -> None:
    both = PartyTokens({"main": "inline"}, rotation.file)
    assert [index_of_presented(both.active(), token) for token in (b"inline", b"first", b"second", b"third")] == [
        0,
        1,
        2,
        None,
    ]
