"""Settings of senders: each scheme has secrets of its own form, and who shows none is on this machine."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from sfn.http.secrets import AuthScheme
from tests.unit.settings_ground import CATALOG, Ground
from tests.unit.webhooks import SECRET

TEXT = "a text of sixteen"
TOLD = "[catalogs.out]\ntype = 'events'\ncatalog_id = 'out'\nallowed_locations = ['/w']\n"


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def webhook(size: int) -> str:
    return f"whsec_{b64encode(bytes(range(size))).decode()}"


def sender(scheme: str, more: str = "", name: str = "a") -> str:
    return f"{CATALOG if name == 'a' else ''}[senders.{name}]\nscheme = '{scheme}'\ncatalog = 'prod'\n{more}\n"


@pytest.mark.parametrize(
    ("scheme", "secret"),
    [
        *(("bearer", "x"), ("bearer", SECRET), ("hmac-sha256", TEXT), ("hmac-sha256", "ein Text voller Größe 🧊")),
        *(("hmac-sha256", "x" * 1_024), ("hmac-sha256", SECRET), ("standard-webhooks", SECRET)),
        *(("standard-webhooks", webhook(size)) for size in (24, 25, 26, 32, 64)),
    ],
)
def test_each_scheme_takes_secrets_of_its_form(ground: Ground, scheme: str, secret: str) -> None:
    text = sender(scheme, f"secrets = {{ m = '{secret}' }}")
    loaded = ground.load(text).senders["a"]
    assert loaded.scheme == scheme
    assert loaded.secrets["m"].get_secret_value() == secret


@pytest.mark.parametrize(
    ("scheme", "secret", "said"),
    [
        ("bearer", "two words", "visible ASCII characters without spaces"),
        ("bearer", "", "visible ASCII characters without spaces"),
        *(
            ("standard-webhooks", secret, "whsec_ and the base64 of 24 to 64 random bytes")
            for secret in (
                *("", "whsec_", SECRET.removeprefix("whsec_"), f"v1,{SECRET}", SECRET.replace("whsec", "whsk"), TEXT),
                *(webhook(23), webhook(65), webhook(25).rstrip("="), f"{webhook(24)}==", f"{SECRET}\\n", f" {SECRET}"),
                *(webhook(25).replace("GA==", "GB=="), SECRET.replace("w", "-"), SECRET.upper(), "whsec_ä"),
            )
        ),
        *(
            ("hmac-sha256", secret, "a text of 16 to 1024 printable characters")
            for secret in (
                *("", "fifteen of them", "x" * 1_025, f" {TEXT}", f"{TEXT} ", f"{TEXT}\\n", f"{TEXT}\\u2028{TEXT}"),
                *(f"{TEXT}\\u0000", f"\\u00a0{TEXT}", f"{TEXT}\\u202e{TEXT}"),
            )
        ),
    ],
)
def test_another_form_is_refused_where_it_stands_and_not_repeated(
    ground: Ground, scheme: str, secret: str, said: str
) -> None:
    problem = ground.problem(sender(scheme, f'secrets = {{ m = "{secret}" }}'))
    assert problem.startswith(f"sfn.toml: [senders.a.secrets] m: expected {said}")
    assert problem.endswith("found another value")


def test_a_wrong_secret_of_the_environment_is_named_as_its_variable(ground: Ground) -> None:
    problem = ground.problem(sender("standard-webhooks"), {"SFN_SENDERS__A__SECRETS": "{ m = 's3cret' }"})
    assert problem.startswith("SFN_SENDERS__A__SECRETS: ")
    assert "s3cret" not in problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            sender("hmac", "secrets = { m = 'x' }"),
            "[senders.a] scheme: expected 'bearer', 'standard-webhooks', 'hmac-sha256' or 'none', found 'hmac'",
        ),
        (sender("standard-webhooks"), "secrets: expected a secret, found neither secrets nor secrets_file"),
        (sender("hmac-sha256"), "secrets: expected a secret, found neither secrets nor secrets_file"),
        (sender("none", "secrets = { m = 'x' }"), "secrets: expected none with the scheme none, found some"),
        (sender("none", "secrets_file = '/f'"), "secrets: expected none with the scheme none, found some"),
        *(
            (sender(scheme, f"{more}signature_header = 'X-Hub-Signature-256'"), f"with the scheme {scheme}, found one")
            for scheme, more in (
                ("bearer", "secrets_file = '/f'\n"),
                ("standard-webhooks", "secrets_file = '/f'\n"),
                ("none", ""),
            )
        ),
        *(
            (sender("hmac-sha256", f"secrets_file = '/f'\nsignature_header = '{name}'"), "[senders.a] signature_header")
            for name in ("", "X Signature", "X:Y", "ä", "x" * 65, "-x")
        ),
        (sender("bearer", "secrets_file = '/f'\nrate_limit = 0"), "[senders.a] rate_limit"),
        (sender("bearer", "secrets_file = '/f'\nrate_limit = 'many'"), "[senders.a] rate_limit"),
        (
            f"[listener]\nhost = '10.0.0.1'\n{sender('none')}",
            "[senders.a] scheme: expected a proof of who it is, as 10.0.0.1 is no loopback address, found none; give",
        ),
        (
            sender("none") + sender("none", name="b"),
            "[senders.b] scheme: expected a proof of who it is, as all who show none are a, found none",
        ),
        (
            TOLD + CATALOG + "[senders.a]\nscheme = 'none'\ncatalogs = { x = 'prod', y = 'out' }",
            "[senders.a] scheme: expected a proof of who it is, as what is told of out is believed",
        ),
        (
            sender("hmac-sha256", f"secrets = {{ m = '{SECRET}' }}")
            + sender("standard-webhooks", f"secrets = {{ n = '{SECRET}' }}", "b"),
            "[senders.b.secrets] n: expected a token of its own, found one of the sender a",
        ),
        (
            "[inbox]\nevent_retention = '599s'\n" + sender("standard-webhooks", "secrets_file = '/f'"),
            "[inbox] event_retention: expected at least 10 min, as a signed message may come again for as long, found",
        ),
    ],
)
def test_settings_of_senders_that_do_not_fit_together_are_refused(ground: Ground, text: str, said: str) -> None:
    assert said in ground.problem(text)


def test_nothing_need_be_shown_on_this_machine_by_one_sender(ground: Ground) -> None:
    loaded = ground.load(sender("none") + sender("bearer", "secrets_file = '/f'\nrate_limit = 60", "b"))
    assert {name: one.scheme for name, one in loaded.senders.items()} == {"a": AuthScheme.NONE, "b": AuthScheme.BEARER}
    assert (loaded.senders["a"].rate_limit, loaded.senders["b"].rate_limit) == (None, 60)


def test_messages_without_ids_of_their_own_need_no_memory_of_a_length(ground: Ground) -> None:
    text = "[inbox]\nevent_retention = '1s'\n" + sender("hmac-sha256", "secrets_file = '/f'")
    assert ground.load(text).senders["a"].signature_header == "X-Hub-Signature-256"


def test_ten_minutes_of_memory_are_enough(ground: Ground) -> None:
    ground.load("[inbox]\nevent_retention = '10m'\n" + sender("standard-webhooks", "secrets_file = '/f'"))
