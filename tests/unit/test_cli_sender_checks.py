"""What `sfn check` says of each sender: how it shows who it is, by how many secrets, and which are weak."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from sfn.cli.check_config import CheckFinding, Severity, secret_findings
from tests.unit.settings_ground import CATALOG, Ground
from tests.unit.webhooks import SECRET

TEXT = "a text of sixteen"
REST = f"{CATALOG}[admin]\ntoken = 'sixteen-of-those'\n"


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def said(ground: Ground, text: str) -> list[CheckFinding]:
    return [one for one in secret_findings(ground.load(REST + text)) if one.where != "tokens"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("secrets = { m = 'sixteen-of-these' }", "bearer, 1 token"),
        ("secrets_file = '{folder}/tokens'\nsecrets = { m = 'sixteen-of-these' }", "bearer, 3 tokens"),
        (f"scheme = 'standard-webhooks'\nsecrets = {{ m = '{SECRET}' }}", "standard-webhooks, 1 secret"),
        (
            "scheme = 'hmac-sha256'\nsecrets_file = '{folder}/secrets'\nrate_limit = 60",
            "hmac-sha256 in X-Hub-Signature-256, 2 secrets, at most 60 requests a minute",
        ),
        (
            f"scheme = 'hmac-sha256'\nsignature_header = 'X-Polaris-Signature-256'\nsecrets = {{ m = '{TEXT}' }}",
            "hmac-sha256 in X-Polaris-Signature-256, 1 secret",
        ),
    ],
)
def test_each_sender_is_named_with_its_scheme_and_how_many_secrets_it_has(
    ground: Ground, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "tokens").write_text("the-first-of-two-tokens\n# and\nthe-second-of-two-tokens\n")
    (tmp_path / "secrets").write_text("the first of two\nthe second of two\n")
    (found,) = said(ground, f"[senders.etl]\n{text.replace('{folder}', str(tmp_path))}")
    assert found == CheckFinding("senders.etl", Severity.OK, expected)


def test_a_sender_that_shows_nothing_is_warned_of(ground: Ground) -> None:
    (found,) = said(ground, "[senders.local]\nscheme = 'none'")
    assert (found.where, found.severity) == ("senders.local", Severity.WARNING)
    assert found.text == "none: whoever shows nothing is this sender"
    assert "set senders.local.scheme" in found.remedy


@pytest.mark.parametrize(
    ("scheme", "secret", "why", "remedy"),
    [
        ("bearer", "abababababababab", "a token of fewer than 5 different characters", "what `openssl rand -hex 32`"),
        ("bearer", "abc", "a token of fewer than 16 characters", "what `openssl rand -hex 32`"),
        ("hmac-sha256", "1111111111111111", "a secret of fewer than 5 different characters", "what `openssl rand -hex"),
        (
            "standard-webhooks",
            f"whsec_{b64encode(bytes(25)).decode()}",
            "a secret of fewer than 5 different characters",
            "whsec_ before what `openssl rand -base64 32`",
        ),
    ],
)
@pytest.mark.parametrize("on_file", [False, True])
def test_a_secret_that_is_soon_guessed_is_warned_of(
    ground: Ground, tmp_path: Path, scheme: str, secret: str, why: str, remedy: str, on_file: bool
) -> None:
    (tmp_path / "tokens").write_text(f"#\n{secret}\n")
    origin = f"secrets_file = '{tmp_path}/tokens'" if on_file else f"secrets = {{ m = '{secret}' }}"
    _, found = said(ground, f"[senders.etl]\nscheme = '{scheme}'\n{origin}")
    place = f"{tmp_path}/tokens, line 2: " if on_file else ""
    assert found.severity is Severity.WARNING
    assert found.where == ("senders.etl.secrets_file" if on_file else "senders.etl.secrets.m")
    assert found.text == f"{place}{why} is soon guessed"
    assert remedy in found.remedy
    assert secret not in found.text + found.remedy


@pytest.mark.parametrize("content", [None, "", "too short", f"{SECRET[:-1]}"])
def test_a_file_of_secrets_that_cannot_be_used_is_an_error(ground: Ground, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "secrets").write_text(content)
    text = f"[senders.etl]\nscheme = 'standard-webhooks'\nsecrets_file = '{tmp_path}/secrets'"
    (found,) = said(ground, text)
    assert (found.where, found.severity) == ("senders.etl.secrets_file", Severity.ERROR)
    if content is None:
        assert found.remedy.startswith("write the secrets there, one a line")
    else:
        assert "a file of secrets, one a line: whsec_ and the base64 of 24 to 64 random bytes" in found.text
    assert SECRET[:-1] not in found.text


def test_a_secret_that_two_senders_have_is_an_error(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text(SECRET)
    one = f"scheme = 'standard-webhooks'\nsecrets_file = '{tmp_path}/secrets'\n"
    settings = ground.load(f"{REST}[senders.a]\n{one}[senders.b]\n{one}")
    (found,) = [one for one in secret_findings(settings) if one.where == "tokens"]
    assert found.severity is Severity.ERROR
    assert SECRET not in found.text


TOLD = "[catalogs.hive]\ntype = 'events'\ncatalog_id = 'h'\nallowed_locations = ['/w']\n"
BOTH = "catalogs = { p = 'prod', h = 'hive' }"


def test_a_signature_that_may_come_again_of_what_is_believed_is_warned_of(ground: Ground) -> None:
    text = f"{TOLD}[senders.etl]\nscheme = 'hmac-sha256'\nsecrets = {{ m = '{TEXT}' }}\n"
    _, found = said(ground, f"{text}{BOTH}")
    assert (found.where, found.severity) == ("senders.etl", Severity.WARNING)
    assert found.text == (
        "what is told of hive is believed, and who has a copy of a signed request can send it again: "
        "it is known by its event_id alone, for 3 d"
    )
    assert "senders.etl.scheme = standard-webhooks" in found.remedy
    assert len(said(ground, f"{text}catalog = 'prod'")) == 1
    signed = f"{TOLD}[senders.etl]\nscheme = 'standard-webhooks'\nsecrets = {{ m = '{SECRET}' }}\n{BOTH}"
    assert len(said(ground, signed)) == 1


def test_notifications_of_one_that_signs_are_none_where_it_is_believed(ground: Ground) -> None:
    text = f"{TOLD}[senders.etl]\nscheme = 'standard-webhooks'\nsecrets = {{ m = '{SECRET}' }}\ndialect = 'polaris'\n"
    _, found = said(ground, f"{text}{BOTH}")
    assert (found.where, found.severity) == ("senders.etl", Severity.WARNING)
    assert found.text == (
        "none of its notifications is taken: no signature covers their path, and what is told of hive is believed"
    )
    assert len(said(ground, f"{text}catalog = 'prod'")) == 1
    plain = f"{TOLD}[senders.etl]\nsecrets = {{ m = 'sixteen-of-these' }}\ndialect = 'polaris'\n{BOTH}"
    assert len(said(ground, plain)) == 1
