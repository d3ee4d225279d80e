"""Which sender a signature is of: exactly one, and never by a secret that two of them have."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sfn.clock import SystemClock
from sfn.dialects import Sender
from sfn.errors import Broken
from sfn.receiver.keyring import Keyring
from sfn.receiver.operators import PARTY
from sfn.receiver.secret import Scheme
from sfn.receiver.senders import Proven, Senders
from sfn.receiver.signature import HmacSha256, Manner, StandardWebhooks, signed
from sfn.receiver.tokens import Token, TokenFile, Tokens
from sfn.wiring.admission import admission
from tests.unit.settings_ground import CATALOG, Ground
from tests.unit.webhooks import AT, BODY, MESSAGE, SECRET

NAMES = ("etl", "spark", "polaris", "other")
SENDERS = {name: Sender(name, {name: "prod"}) for name in NAMES}
POLARIS = HmacSha256(b"x-polaris-signature-256")
TEXT = "a text of sixteen"
SECRETS = {
    "etl": SECRET,
    "spark": f"whsec_{b64encode(b'of twenty-four bytes: bb').decode()}",
    "polaris": TEXT,
    "other": f"{TEXT} and more",
}
SIGNING: dict[str, Manner] = {
    "etl": StandardWebhooks(),
    "spark": StandardWebhooks(),
    "polaris": POLARIS,
    "other": POLARIS,
}


@dataclass(slots=True)
class Stopped:
    """A clock that goes when it is told to."""

    at: datetime = AT

    def now(self) -> datetime:
        return self.at


def scheme_of(name: str) -> Scheme:
    return Scheme.STANDARD_WEBHOOKS if SIGNING[name] == StandardWebhooks() else Scheme.HMAC_SHA256


def tokens(name: str, **more: str) -> Tokens:
    return Tokens({"main": SECRETS[name], **more}, scheme=scheme_of(name))


def opened(keyring: Keyring | None = None, clock: Stopped | None = None, open_to: Sender | None = None) -> Senders:
    keyring = keyring or Keyring({name: tokens(name) for name in NAMES})
    return Senders(keyring, SENDERS, open_to, signing=SIGNING, clock=clock or Stopped())


def head(
    *names: str, secret: str | None = None, message: str = MESSAGE, at: datetime = AT
) -> list[tuple[bytes, bytes]]:
    """The headers of a body that these senders signed."""
    found: dict[bytes, bytes] = {}
    for name in names:
        key = Token.of("", secret or SECRETS[name], scheme_of(name)).key
        assert key is not None
        for field, value in signed(SIGNING[name], key, BODY, message, at).items():
            doubles = field == "webhook-signature" and found
            before = found.get(field.encode(), b"") + b" " if doubles else b""
            found[field.encode()] = before + value.encode()
    return [*found.items()]


async def whose(senders: Senders, headers: list[tuple[bytes, bytes]], authorization: bytes | None = None) -> str | None:
    who = senders.by_head(authorization, headers)
    if isinstance(who, Sender) or who is None:
        return None if who is None else who.name
    proven = await senders.proven(who, BODY)
    return None if proven is None else proven.sender.name


@pytest.mark.parametrize("name", NAMES)
async def test_who_signed_it_is_the_sender_and_each_has_its_manner(name: str) -> None:
    assert await whose(opened(), head(name)) == name


async def test_the_id_of_a_message_is_told_where_there_is_one() -> None:
    senders = opened()
    for name, message in (("etl", MESSAGE), ("polaris", None)):
        claimants = senders.by_head(None, head(name))
        assert isinstance(claimants, tuple)
        assert await senders.proven(claimants, BODY) == Proven(SENDERS[name], message)
        assert await senders.proven(claimants, BODY + b" ") is None


async def test_what_two_senders_signed_is_nobodys() -> None:
    assert await whose(opened(), head("etl", "spark")) is None
    assert await whose(opened(), head("etl", "polaris")) is None


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
    keyring = Keyring({"bearer": Tokens({"m": "a-token"}), PARTY: Tokens({"t": "op"})} | {"etl": tokens("etl")})
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
        assert senders.by_head(wrong, []) is None


@pytest.mark.parametrize("name", NAMES)
async def test_a_secret_that_signs_opens_nothing_where_it_is_shown(name: str) -> None:
    shown = b"Bearer " + SECRETS[name].encode()
    assert await whose(opened(), [], shown) is None
    assert Keyring({name: tokens(name)}).whose(shown) is None


async def test_who_shows_nothing_is_the_open_sender_and_who_shows_something_wrong_is_nobody() -> None:
    everybody = Sender("local", {})
    senders = opened(open_to=everybody)
    assert senders.by_head(None, [(b"host", b"x")]) is everybody
    assert senders.need_not_show(everybody)
    assert not senders.need_not_show(SENDERS["etl"])
    assert await whose(senders, head("etl")) == "etl"
    right = dict(head("etl"))
    for wrong in (
        [*{**right, b"webhook-timestamp": b"0"}.items()],
        [(b"webhook-id", b"x")],
        [(b"x-polaris-signature-256", b"")],
        [*{**right, b"webhook-signature": b"v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="}.items()],
    ):
        assert await whose(senders, wrong) is None
    assert senders.by_head(b"Bearer wrong", []) is None


class Files:
    """Two senders with a file of secrets each."""

    def __init__(self, folder: Path) -> None:
        self.files = {name: folder / name for name in ("etl", "spark")}
        self._numbers = count()
        self._watched: dict[str, TokenFile] = {}
        for name in self.files:
            self.write(name, SECRETS[name])

    def opened(self) -> Senders:
        self._watched = {name: TokenFile(file, scheme_of(name)) for name, file in self.files.items()}
        return opened(Keyring({name: Tokens({}, file, scheme_of(name)) for name, file in self._watched.items()}))

    def write(self, name: str, *secrets: str) -> None:
        # The number tells files apart whose size and time are the same.
        self.files[name].write_text("\n".join([*secrets, "#" * next(self._numbers)]))
        if name in self._watched:
            self._watched[name].look()


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
    file = TokenFile(files.files["etl"], scheme_of("etl"))
    (tmp_path / "operators").write_text("op")
    operators = TokenFile(tmp_path / "operators")
    keyring = Keyring({"etl": Tokens({}, file, scheme_of("etl")), PARTY: Tokens({}, operators)})
    assert [key.name for key in keyring.keys("etl")] == [f"{files.files['etl']}:1"]
    (tmp_path / "operators").write_text(f"op\n{SECRETS['etl']}")
    operators.look()
    assert keyring.keys("etl") == ()
    assert keyring.whose(b"Bearer " + SECRETS["etl"].encode()) is None
    assert keyring.keys(PARTY) == ()


def test_a_secret_of_two_senders_stops_the_start(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write("spark", SECRETS["etl"])
    with pytest.raises(Broken) as caught:
        files.opened()
    assert caught.value.where == f"etl ({files.files['etl']}:1) and spark ({files.files['spark']}:1)"
    assert "whsec" not in str(caught.value)


@pytest.mark.parametrize("other", ["[admin]\ntoken_file = '{}'", "[senders.b]\nsecrets_file = '{}'"])
def test_a_secret_that_signs_is_nobody_elses_token(tmp_path: Path, other: str) -> None:
    (tmp_path / "mine").write_text(SECRET)
    (tmp_path / "theirs").write_text(SECRET)
    text = f"{CATALOG}[senders.a]\nscheme = 'standard-webhooks'\nsecrets_file = '{tmp_path}/mine'\n"
    settings = Ground(tmp_path).load(text + other.format(tmp_path / "theirs"))
    with pytest.raises(Broken, match=r"senders.a .*mine:1. and "):
        admission(settings, SystemClock())


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
    with pytest.raises(Broken) as caught:
        TokenFile(tmp_path / "secrets", Scheme(scheme))
    assert caught.value.found == found
    assert caught.value.expected == f"a file of secrets, one a line: {Scheme(scheme).form}"


def test_no_representation_tells_a_secret_that_signs() -> None:
    keyring = Keyring({name: tokens(name) for name in NAMES})
    for thing in (tokens("etl"), tokens("etl").active(), keyring, keyring.keys("etl"), opened(keyring)):
        assert "MfKQ" not in repr(thing)
        assert repr(keyring.keys("etl")[0].secret) not in repr(thing)


async def test_settings_say_how_each_sender_signs_and_who_need_not(tmp_path: Path) -> None:
    (tmp_path / "etl").write_text(SECRETS["etl"])
    text = (
        f"{CATALOG}[senders.etl]\nscheme = 'standard-webhooks'\nsecrets_file = '{tmp_path}/etl'\n"
        f"[senders.polaris]\nscheme = 'hmac-sha256'\nsignature_header = 'X-Polaris-Signature-256'\nrate_limit = 7\n"
        f"secrets = {{ main = '{TEXT}' }}\n[senders.local]\nscheme = 'none'\nrate_limit = 9\n"
    )
    admitted = admission(Ground(tmp_path).load(text), Stopped())
    assert [await whose(admitted.senders, head(name)) for name in ("etl", "spark", "polaris")] == [
        "etl",
        None,
        "polaris",
    ]
    assert admitted.senders.by_head(None, []) == Sender("local", {"prod": "prod"})
    assert admitted.senders.least_rate == 7
    assert len(admitted.files) == 1
