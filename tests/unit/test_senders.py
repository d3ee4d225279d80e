"""Who may send: tokens, their rotation, and where none is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sfn.dialects import Sender
from sfn.errors import Broken
from sfn.receiver.senders import Known, Senders, anonymous
from sfn.receiver.tokens import MAX_FILE, REREAD_AFTER, Token, TokenFile, Tokens, bearer, match

ETL = Sender("etl", {"prod": "prod"})
SPARK = Sender("spark", {"dev": "dev"})


class Seconds:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_one_look(self) -> None:
        self.now += REREAD_AFTER


def shown(token: str) -> bytes:
    return b"Bearer " + token.encode()


@pytest.fixture
def senders() -> Senders:
    return Senders(
        [
            Known(ETL, Tokens({"old": "etl-old-token", "new": "etl-new-token"})),
            Known(SPARK, Tokens({"main": "spark-token"})),
        ]
    )


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
def test_anything_else_is_nobody(senders: Senders, authorization: bytes | None) -> None:
    assert senders.verify(authorization) is None


def test_the_scheme_is_read_as_http_wants_it() -> None:
    assert bearer(b"bearer  x") == b"x"
    assert bearer(b" BEARER x ") == b"x"
    assert bearer(b"Bearerx") is None


def test_all_tokens_are_compared_whichever_matches() -> None:
    asked: list[int] = []
    tokens = [Token.of(str(number), str(number)) for number in range(4)]

    def seen() -> Iterator[Token]:
        for index, token in enumerate(tokens):
            asked.append(index)
            yield token

    assert match(seen(), b"1") == 1
    assert asked == [0, 1, 2, 3]


def test_a_shared_token_is_the_first_senders() -> None:
    senders = Senders([Known(ETL, Tokens({"a": "same"})), Known(SPARK, Tokens({"b": "same"}))])
    assert senders.verify(shown("same")) == ETL


def test_no_representation_tells_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("file-secret\n")
    tokens = Tokens({"main": "s3cret-token"}, TokenFile(file))
    for thing in (tokens, tokens.active(), Known(ETL, tokens), Senders([Known(ETL, tokens)]), TokenFile(file)):
        assert "s3cret" not in repr(thing)
        assert "file-secret" not in repr(thing)
        assert repr(tokens.active()[0].digest) not in repr(thing)


def test_an_operators_token_is_admitted() -> None:
    tokens = Tokens({"admin": "op"})
    assert tokens.admit(shown("op"))
    assert not tokens.admit(shown("po"))
    assert not tokens.admit(None)
    assert not Tokens({}).admit(shown(""))


class Rotation:
    """A file of tokens, and time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds = Seconds()
        self.write("# tokens of spring\n\nfirst\n  second \r\n")
        self.file = TokenFile(path, self.seconds)
        self.tokens = Tokens({}, self.file)

    def write(self, text: str | bytes) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_bytes(text if isinstance(text, bytes) else text.encode())
        beside.replace(self.path)

    def admits(self, *tokens: str) -> bool:
        return all(self.tokens.admit(shown(token)) for token in tokens)


@pytest.fixture
def rotation(tmp_path: Path) -> Rotation:
    return Rotation(tmp_path / "tokens")


def test_a_file_holds_one_token_a_line(rotation: Rotation) -> None:
    assert rotation.admits("first", "second")
    assert not rotation.admits("#")
    assert not rotation.admits("tokens")
    assert [token.name for token in rotation.file.tokens()] == ["tokens:3", "tokens:4"]


def test_a_new_file_is_read_once_a_second_at_most(rotation: Rotation) -> None:
    rotation.write("third\n")
    rotation.seconds.now += REREAD_AFTER * 0.9
    assert rotation.admits("first")
    assert not rotation.admits("third")
    rotation.seconds.now += REREAD_AFTER * 0.1
    assert rotation.admits("third")
    assert not rotation.admits("first")


def test_a_file_written_in_place_is_read_again(rotation: Rotation) -> None:
    content = rotation.path.read_text()
    status = rotation.path.stat()
    rotation.path.write_text(content.replace("first", "tsrif"))
    os.utime(rotation.path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    rotation.seconds.pass_one_look()
    assert rotation.admits("tsrif")


def test_an_unchanged_file_is_not_read_again(rotation: Rotation) -> None:
    rotation.seconds.pass_one_look()
    before = rotation.file.tokens()
    rotation.seconds.pass_one_look()
    assert rotation.file.tokens() is before


@pytest.mark.parametrize(
    "broken", ["", "# none\n\n", "two words\n", "ümlaut\n", b"\xff\n", "good\nbad\x01\n", "x" * (MAX_FILE + 1)]
)
def test_a_broken_file_keeps_the_old_tokens_and_is_logged_once(rotation: Rotation, broken: str | bytes) -> None:
    rotation.write(broken)
    with capture_logs() as logs:
        for _ in range(3):
            rotation.seconds.pass_one_look()
            assert rotation.admits("first", "second")
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert "bad" not in str(logs)
    rotation.write("third\n")
    rotation.seconds.pass_one_look()
    assert rotation.admits("third")


def test_a_file_that_went_away_keeps_the_old_tokens(rotation: Rotation) -> None:
    rotation.path.unlink()
    rotation.seconds.pass_one_look()
    assert rotation.admits("first")
    rotation.write("# tokens of summer\nthird\n")
    rotation.seconds.pass_one_look()
    assert rotation.admits("third")
    assert not rotation.admits("first")


def test_a_file_that_never_was_right_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="tokens"):
        TokenFile(tmp_path / "tokens")
    (tmp_path / "tokens").write_text("# nothing\n")
    with pytest.raises(Broken, match="no token"):
        TokenFile(tmp_path / "tokens")


def test_named_tokens_and_those_of_the_file_are_active_together(rotation: Rotation) -> None:
    both = Tokens({"main": "inline"}, rotation.file)
    assert both.admit(shown("inline"))
    assert both.admit(shown("first"))


def test_without_senders_everybody_speaks_for_all_catalogs() -> None:
    everybody = Sender("anonymous", {"dev": "dev", "prod": "prod"})
    senders = anonymous(["dev", "prod"])
    assert senders.verify(None) == everybody
    assert senders.verify(shown("whatever")) == everybody


def test_a_configured_sender_ends_anonymity() -> None:
    senders = Senders([Known(ETL, Tokens({"main": "x"}))], open_to=Sender("anonymous", {}))
    assert senders.verify(None) is None


def test_no_sender_and_no_anonymity_is_nobody() -> None:
    assert Senders([]).verify(shown("x")) is None
