"""Files of secrets that sign: rotated without a gap, and nobody's where two parties have one."""

from __future__ import annotations

from base64 import b64encode
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sfn.app.endpoints import build_access_control
from sfn.clock import SystemClock
from sfn.errors import FatalError
from sfn.http.secrets import AuthScheme, PartyTokens, WatchedTokenFile
from sfn.http.senders import OPERATORS_PARTY, Keyring, Senders
from tests.unit.settings_ground import CATALOG, Ground
from tests.unit.signers import SECRETS, TEXT, head, opened, scheme_of, whose
from tests.unit.webhooks import SECRET


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


async def test_a_secret_that_comes_to_be_of_two_senders_is_nobodys_until_it_is_ones_again(tmp_path: Path) -> None:
    files = Files(tmp_path)
    senders = files.opened()
    assert [await whose(senders, head(name)) for name in files.files] == ["etl", "spark"]
    with capture_logs() as logs:
        files.write("spark", SECRETS["spark"], SECRETS["etl"])
        assert [await whose(senders, head(name)) for name in files.files] == [None, "spark"]
    (told,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert told["places"] == [f"etl ({files.files['etl']}:1)", f"spark ({files.files['spark']}:2)"]
    assert "whsec" not in str(logs)
    files.write("spark", SECRETS["spark"])
    assert [await whose(senders, head(name)) for name in files.files] == ["etl", "spark"]


async def test_a_secret_is_rotated_through_a_file_without_a_gap(tmp_path: Path) -> None:
    files = Files(tmp_path)
    senders = files.opened()
    new = f"whsec_{b64encode(b'another one, of 26 bytes..').decode()}"
    found = []
    for content in ([SECRETS["etl"]], [SECRETS["etl"], new], [new], ["nonsense"], []):
        files.write("etl", *content)
        found.append([await whose(senders, head("etl", secret=secret)) for secret in (SECRETS["etl"], new)])
    assert found == [["etl", None], ["etl", "etl"], [None, "etl"], [None, "etl"], [None, "etl"]]


def test_a_secret_that_comes_to_be_somebodys_token_too_signs_no_more(tmp_path: Path) -> None:
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


def test_a_secret_of_two_senders_stops_the_start(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write("spark", SECRETS["etl"])
    with pytest.raises(FatalError) as caught:
        files.opened()
    assert caught.value.where == f"etl ({files.files['etl']}:1) and spark ({files.files['spark']}:1)"
    assert "whsec" not in str(caught.value)


@pytest.mark.parametrize("other", ["[admin]\ntoken_file = '{}'", "[senders.b]\nsecrets_file = '{}'"])
def test_a_secret_that_signs_is_nobody_elses_token(tmp_path: Path, other: str) -> None:
    (tmp_path / "mine").write_text(SECRET)
    (tmp_path / "theirs").write_text(SECRET)
    text = f"{CATALOG}[senders.a]\nscheme = 'standard-webhooks'\nsecrets_file = '{tmp_path}/mine'\n"
    settings = Ground(tmp_path).load(text + other.format(tmp_path / "theirs"))
    with pytest.raises(FatalError, match=r"senders.a .*mine:1. and "):
        build_access_control(settings, SystemClock())


@pytest.mark.parametrize(
    ("scheme", "content", "found"),
    [
        ("standard-webhooks", f"{SECRET}\nnonsense", "another text in line 2"),
        ("standard-webhooks", f"# {SECRET}", "no secret"),
        ("hmac-sha256", f"{TEXT}\ntoo short", "another text in line 2"),
    ],
)
def test_a_file_of_secrets_of_another_form_stops_the_start(
    tmp_path: Path, scheme: str, content: str, found: str
) -> None:
    (tmp_path / "secrets").write_text(content)
    with pytest.raises(FatalError) as caught:
        WatchedTokenFile(tmp_path / "secrets", AuthScheme(scheme))
    assert caught.value.found == found
    assert caught.value.expected == f"a file of secrets, one a line: {AuthScheme(scheme).form}"
