"""Files of secrets and tokens."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sfn.app.endpoints import build_access_control
from sfn.clock import SystemClock
from sfn.errors import FatalError
from sfn.http.secrets import (
    MAX_FILE,
    AcceptedToken,
    AuthScheme,
    PartyTokens,
    WatchedTokenFile,
    bearer_token,
    index_of_presented,
)
from sfn.http.senders import OPERATORS_PARTY, Keyring, Senders
from tests.support.settings_file import CATALOG, Ground
from tests.unit.webhooks import SECRET, SECRETS, TEXT, opened, scheme_of, signed_head, whose


class Files:
    """Two senders with a file of secrets each."""

    def __init__(self, folder: Path) -> None:
        self.files = {name: folder / name for name in ("etl", "spark")}
        self._numbers = count()
        self._watched: dict[str, WatchedTokenFile] = {}
        for name in self.files:
            self.write(name, SECRETS[name])

    def opened(self) -> Senders:
        self._watched = {name: WatchedTokenFile(file, scheme_of(name)) for name, file in self.files.items()}
        return opened(Keyring({name: PartyTokens({}, file, scheme_of(name)) for name, file in self._watched.items()}))

    def write(self, name: str, *secrets: str) -> None:
        # The number tells files apart whose size and time are the same.
        self.files[name].write_text("\n".join([*secrets, "#" * next(self._numbers)]))
        if name in self._watched:
            self._watched[name].reload_if_changed()


async def test_secret_shared_by_two_senders_is_rejected_until_it_is_unique(tmp_path: Path) -> None:
    files = Files(tmp_path)
    senders = files.opened()
    assert [await whose(senders, signed_head(name)) for name in files.files] == ["etl", "spark"]
    with capture_logs() as logs:
        files.write("spark", SECRETS["spark"], SECRETS["etl"])
        assert [await whose(senders, signed_head(name)) for name in files.files] == [None, "spark"]
    (told,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert told["places"] == [f"etl ({files.files['etl']}:1)", f"spark ({files.files['spark']}:2)"]
    assert "whsec" not in str(logs)
    files.write("spark", SECRETS["spark"])
    assert [await whose(senders, signed_head(name)) for name in files.files] == ["etl", "spark"]


async def test_secret_is_rotated_through_a_file_without_a_gap(tmp_path: Path) -> None:
    files = Files(tmp_path)
    senders = files.opened()
    new = f"whsec_{b64encode(b'another one, of 26 bytes..').decode()}"
    found = []
    for content in ([SECRETS["etl"]], [SECRETS["etl"], new], [new], ["nonsense"], []):
        files.write("etl", *content)
        found.append([await whose(senders, signed_head("etl", secret=secret)) for secret in (SECRETS["etl"], new)])
    assert found == [["etl", None], ["etl", "etl"], [None, "etl"], [None, "etl"], [None, "etl"]]


def test_secret_that_is_also_a_token_verifies_no_signature(tmp_path: Path) -> None:
    files = Files(tmp_path)
    file = WatchedTokenFile(files.files["etl"], scheme_of("etl"))
    (tmp_path / "operators").write_text("op")
    operators = WatchedTokenFile(tmp_path / "operators")
    keyring = Keyring({"etl": PartyTokens({}, file, scheme_of("etl")), OPERATORS_PARTY: PartyTokens({}, operators)})
    assert [key.name for key in keyring.signing_keys("etl")] == [f"{files.files['etl']}:1"]
    (tmp_path / "operators").write_text(f"op\n{SECRETS['etl']}")
    operators.reload_if_changed()
    assert keyring.signing_keys("etl") == ()
    assert keyring.owner_of(b"Bearer " + SECRETS["etl"].encode()) is None
    assert keyring.signing_keys(OPERATORS_PARTY) == ()


def test_shared_secret_prevents_the_start(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write("spark", SECRETS["etl"])
    with pytest.raises(FatalError) as caught:
        files.opened()
    assert caught.value.where == f"etl ({files.files['etl']}:1) and spark ({files.files['spark']}:1)"
    assert "whsec" not in str(caught.value)


@pytest.mark.parametrize("other", ["[admin]\ntoken_file = '{}'", "[senders.b]\nsecrets_file = '{}'"])
def test_signing_secret_may_not_be_a_token_of_another_party(tmp_path: Path, other: str) -> None:
    (tmp_path / "mine").write_text(SECRET)
    (tmp_path / "theirs").write_text(SECRET)
    text = f"{CATALOG}[senders.a]\nscheme = 'standard-webhooks'\nsecrets_file = '{tmp_path}/mine'\n"
    settings = Ground(tmp_path).load(text + other.format(tmp_path / "theirs"))
    with pytest.raises(FatalError, match=r"senders.a .*mine:1. and "):
        build_access_control(settings, SystemClock())


@pytest.mark.parametrize(
    ("scheme", "content", "found"),
    [
        ("standard-webhooks", f"{SECRET}\nnonsense", "a malformed secret in line 2"),
        ("standard-webhooks", f"# {SECRET}", "no secret"),
        ("hmac-sha256", f"{TEXT}\ntoo short", "a malformed secret in line 2"),
    ],
)
def test_malformed_secrets_file_prevents_the_start(tmp_path: Path, scheme: str, content: str, found: str) -> None:
    (tmp_path / "secrets").write_text(content)
    with pytest.raises(FatalError) as caught:
        WatchedTokenFile(tmp_path / "secrets", AuthScheme(scheme))
    assert caught.value.found == found
    assert caught.value.expected == f"a file of secrets, one per line: {AuthScheme(scheme).form}"


def test_authorization_scheme_is_case_insensitive() -> None:
    assert bearer_token(b"bearer  x") == b"x"
    assert bearer_token(b" BEARER x ") == b"x"
    assert bearer_token(b"Bearerx") is None


def test_all_tokens_are_compared_after_a_match() -> None:
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


def test_tokens_of_a_file_are_named_by_line(rotation: Rotation) -> None:
    assert rotation.admits("first", "second")
    assert not rotation.admits("#")
    assert not rotation.admits("tokens")
    assert [token.name for token in rotation.file.tokens()] == [f"{rotation.path}:3", f"{rotation.path}:4"]


def test_new_file_is_active_after_a_reload(rotation: Rotation) -> None:
    rotation.write("third\n")
    assert rotation.admits("first")
    assert not rotation.admits("third")
    rotation.file.reload_if_changed()
    assert rotation.admits("third")
    assert not rotation.admits("first")


def test_file_written_in_place_is_read_again(rotation: Rotation) -> None:
    content = rotation.path.read_text()
    status = rotation.path.stat()
    rotation.path.write_text(content.replace("first", "tsrif"))
    os.utime(rotation.path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    rotation.file.reload_if_changed()
    assert rotation.admits("tsrif")


def test_unchanged_file_is_not_read_again(rotation: Rotation) -> None:
    rotation.file.reload_if_changed()
    before = rotation.file.tokens()
    rotation.file.reload_if_changed()
    assert rotation.file.tokens() is before


@pytest.mark.parametrize(
    "broken", ["", "# none\n\n", "two words\n", "ümlaut\n", b"\xff\n", "good\nbad\x01\n", "x" * (MAX_FILE + 1)]
)
def test_broken_file_leaves_the_old_tokens_active_and_is_logged_once(rotation: Rotation, broken: str | bytes) -> None:
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


def test_removed_file_leaves_the_old_tokens_active(rotation: Rotation) -> None:
    rotation.path.unlink()
    rotation.file.reload_if_changed()
    assert rotation.admits("first")
    rotation.write("# tokens of summer\nthird\n")
    rotation.file.reload_if_changed()
    assert rotation.admits("third")
    assert not rotation.admits("first")


def test_repeated_error_after_a_valid_file_is_logged_again(rotation: Rotation) -> None:
    aside = rotation.path.with_suffix(".aside")
    with capture_logs() as logs:
        for _ in range(2):
            rotation.path.rename(aside)
            rotation.file.reload_if_changed()
            aside.rename(rotation.path)
            rotation.file.reload_if_changed()
    assert [entry["event"] for entry in logs] == ["tokens not reloaded"] * 2


def test_invalid_file_prevents_the_start(tmp_path: Path) -> None:
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
