"""Where the service is and what it is shown: options first, then the configuration."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from sfn.cli.client import CatalogSender, admin_access, event_access, find_sender, local_url, read_first_token
from sfn.cli.options import EventSigner, ServiceOptions
from sfn.http.signature import HmacSha256, StandardWebhooks
from sfn.settings import load, load_client
from sfn.settings.service import ListenerSettings
from sfn.settings.sources import ConfigurationError
from tests.unit.webhooks import KEY, SECRET

PARTIES = """
[senders.a]
secrets = {m = "x"}
catalog = "prod"
[senders.b]
secrets = {m = "y"}
catalogs = {theirs = "dev"}
"""
CATALOGS = "[catalogs.prod]\nuri = 'http://c'\n[catalogs.dev]\nuri = 'http://d'\n"


def written(folder: Path, text: str, name: str = "sfn.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def complaint(flags: ServiceOptions) -> str:
    with pytest.raises(ConfigurationError) as caught:
        admin_access(flags)
    return str(caught.value)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8085"),
        ("0.0.0.0", "http://127.0.0.1:8085"),  # noqa: S104 - read, not bound
        ("::", "http://[::1]:8085"),
        ("[::]", "http://[::1]:8085"),
        ("[fd00::1]", "http://[fd00::1]:8085"),
        ("fd00::1", "http://[fd00::1]:8085"),
        ("sfn.example", "http://sfn.example:8085"),
    ],
)
def test_the_url_is_the_one_by_which_this_machine_reaches_the_listener(host: str, url: str) -> None:
    assert local_url(ListenerSettings(host=host)) == url


def test_a_port_of_the_systems_choice_is_not_guessed() -> None:
    with pytest.raises(ConfigurationError, match="give --url"):
        local_url(ListenerSettings(port=0))


def test_the_configuration_says_all(tmp_path: Path) -> None:
    file = written(tmp_path, "[listener]\nport = 9\n[admin]\ntoken = 'secret'\n")
    found = admin_access(ServiceOptions(config=file))
    assert (found.url, found.token) == ("http://127.0.0.1:9", "secret")
    assert "secret" not in repr(found)


def test_what_is_wrong_elsewhere_in_the_configuration_is_the_services_business(tmp_path: Path) -> None:
    file = written(tmp_path, "[admin]\ntoken = 'secret'\n[catalogs.prod]\nurl = 'unknown'\n[later]\nx = 1\n")
    assert admin_access(ServiceOptions(config=file)).token == "secret"  # noqa: S105 - a test's


def test_what_is_wrong_where_the_command_reads_is_told(tmp_path: Path) -> None:
    assert "did you mean port?" in complaint(ServiceOptions(config=written(tmp_path, "[listener]\nprot = 1\n")))


def test_options_win_over_the_configuration(tmp_path: Path) -> None:
    file = written(tmp_path, "[listener]\nport = 9\n[admin]\ntoken = 'secret'\n")
    token = written(tmp_path, "# the new one\n\n other \nold\n", "token")
    found = admin_access(ServiceOptions(config=file, url="https://sfn.example/", token_file=token))
    assert (found.url, found.token) == ("https://sfn.example", "other")


def test_options_that_say_all_need_no_configuration(tmp_path: Path) -> None:
    token = written(tmp_path, "other", "token")
    absent = tmp_path / "absent.toml"
    assert admin_access(ServiceOptions(config=absent, url="http://h:1", token_file=token)).url == "http://h:1"


def test_the_configurations_file_of_tokens_is_read(tmp_path: Path) -> None:
    token = written(tmp_path, "from-a-file", "token")
    config = written(tmp_path, f"[admin]\ntoken_file = '{token}'\n")
    shown = admin_access(ServiceOptions(config=config)).token
    assert shown == "from-a-file"


def test_the_environment_counts_as_for_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFN_ADMIN__TOKEN", "secret")
    monkeypatch.setenv("SFN_LISTENER__PORT", "77")
    assert load_client(None).listener.port == 77
    assert admin_access(ServiceOptions()).token == "secret"  # noqa: S105 - a test's


def test_without_a_token_it_says_where_one_belongs() -> None:
    assert "name the configuration (--config FILE)" in complaint(ServiceOptions())


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "no token"), ("# nothing\n", "no token"), ("two words\n", "spaces"), (None, "No such file or directory")],
)
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read_first_token(file)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        read_first_token(tmp_path / "token")


@pytest.mark.parametrize("url", ["sfn.example:8085", "ftp://sfn.example", "http://[", "http://h:port"])
def test_a_url_must_be_one(tmp_path: Path, url: str) -> None:
    token = written(tmp_path, "t", "token")
    assert "--url: expected an absolute http or https URL, such as" in complaint(
        ServiceOptions(url=url, token_file=token)
    )


def test_a_listener_with_tls_is_reached_with_it(tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("sfn.example")
    (tmp_path / "chain.pem").write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    tls = f"tls_certificate_file = '{tmp_path}/chain.pem'\ntls_key_file = '{tmp_path}/key.pem'\n"
    file = written(tmp_path, f"[listener]\n{tls}[admin]\ntoken = 'secret'\n")
    found = admin_access(ServiceOptions(config=file))
    assert found.url == "https://127.0.0.1:8085"
    assert isinstance(found.tls_verify, ssl.SSLContext)
    # That very certificate counts, whatever names it has; elsewhere its name does.
    assert found.tls_verify.check_hostname is False
    named = admin_access(ServiceOptions(config=file, url="https://sfn.example"))
    assert isinstance(named.tls_verify, ssl.SSLContext)
    assert named.tls_verify.check_hostname is True


@pytest.mark.parametrize("content", [b"no certificate", b"\xff", None])
def test_a_listener_whose_certificate_cannot_be_read_is_not_trusted(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "chain.pem").write_bytes(content)
    file = written(tmp_path, f"[listener]\ntls_certificate_file = '{tmp_path}/chain.pem'\n[admin]\ntoken = 'secret'\n")
    assert "chain.pem: expected a file of PEM certificates" in complaint(ServiceOptions(config=file))


@pytest.mark.parametrize("text", ["no certificate", None])
def test_certificates_to_trust_must_be_some(tmp_path: Path, text: str | None) -> None:
    token, file = written(tmp_path, "t", "token"), tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    said = complaint(ServiceOptions(url="https://h", token_file=token, ca_file=file))
    assert "ca.pem: expected a file of PEM certificates" in said


@pytest.mark.parametrize(
    ("parties", "catalog", "sender", "found"),
    [
        ("", "dev", None, (None, "dev", "dev")),
        ("[senders.a]\nsecrets = {m = 'x'}\ncatalog = 'prod'\n", None, None, ("a", "prod", "prod")),
        (PARTIES, "dev", None, ("b", "theirs", "dev")),
        (PARTIES, None, "b", ("b", "theirs", "dev")),
    ],
)
def test_whoever_may_speak_for_the_catalog_is_found(
    tmp_path: Path, parties: str, catalog: str | None, sender: str | None, found: tuple[str | None, str, str]
) -> None:
    assert find_sender(load(written(tmp_path, CATALOGS + parties)), catalog, sender) == CatalogSender(*found)


@pytest.mark.parametrize(
    ("catalog", "sender", "said"),
    [
        (None, None, "--catalog: expected one of dev, prod, as there are several, found none"),
        ("prd", None, "--catalog: expected a catalog that a sender speaks for (dev, prod), found prd"),
        (None, "c", "--sender: expected a configured sender (a, b), found c"),
        ("dev", "a", "--catalog: expected a catalog that a sender speaks for (prod), found dev"),
    ],
)
def test_nobody_is_guessed(tmp_path: Path, catalog: str | None, sender: str | None, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_sender(load(written(tmp_path, CATALOGS + PARTIES)), catalog, sender)
    assert said in str(caught.value)


def test_a_senders_token_comes_from_its_secrets_or_its_file(tmp_path: Path) -> None:
    token = written(tmp_path, "from-a-file", "token")
    one = "[catalogs.prod]\nuri = 'http://c'\n[senders.a]\n"
    plain = written(tmp_path, f"{one}secrets = {{m = 'inline'}}\n", "plain.toml")
    filed = written(tmp_path, f"{one}secrets_file = '{token}'\n", "filed.toml")
    assert [event_access(ServiceOptions(config=file), None, None).access.token for file in (plain, filed)] == [
        "inline",
        "from-a-file",
    ]
    given = event_access(ServiceOptions(url="http://h", token_file=token), "theirs", None)
    assert (given.access.token, given.sender_catalog, given.settings) == ("from-a-file", "theirs", None)


@pytest.mark.parametrize(
    ("scheme", "secrets", "expected"),
    [
        ("standard-webhooks", f"secrets = {{ m = '{SECRET}' }}", EventSigner(StandardWebhooks(), KEY.secret)),
        ("standard-webhooks", "secrets_file = '{file}'", EventSigner(StandardWebhooks(), KEY.secret)),
        (
            "hmac-sha256",
            "signature_header = 'X-Polaris-Signature-256'\nsecrets_file = '{file}'",
            EventSigner(HmacSha256(b"x-polaris-signature-256"), SECRET.encode()),
        ),
    ],
)
def test_a_sender_that_signs_has_what_it_signs_with_and_shows_nothing(
    tmp_path: Path, scheme: str, secrets: str, expected: EventSigner
) -> None:
    file = written(tmp_path, f"# the new one\n{SECRET}\nold", "secrets")
    sender = f"[senders.a]\nscheme = '{scheme}'\n{secrets.replace('{file}', str(file))}\ncatalog = 'prod'\n"
    found = event_access(ServiceOptions(config=written(tmp_path, CATALOGS + sender)), None, None).access
    assert (found.token, found.signer) == (None, expected)
    assert "MfKQ" not in repr(found)


def test_a_file_whose_first_secret_is_of_another_form_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "s3cret", "secrets")
    sender = f"[senders.a]\nscheme = 'standard-webhooks'\nsecrets_file = '{file}'\ncatalog = 'prod'\n"
    with pytest.raises(ConfigurationError, match="whose first line is a secret, found none of whsec_ and") as caught:
        event_access(ServiceOptions(config=written(tmp_path, CATALOGS + sender)), None, None)
    assert "s3cret" not in str(caught.value)


def test_a_sender_that_shows_nothing_shows_nothing(tmp_path: Path) -> None:
    sender = "[senders.a]\nscheme = 'none'\ncatalog = 'prod'\n"
    found = event_access(ServiceOptions(config=written(tmp_path, CATALOGS + sender)), None, None).access
    assert (found.token, found.signer) == (None, None)


@pytest.mark.parametrize(
    ("scheme", "content", "token", "signing"),
    [
        ("standard-webhooks", SECRET, None, EventSigner(StandardWebhooks(), KEY.secret)),
        (
            "hmac-sha256",
            "a text of sixteen",
            None,
            EventSigner(HmacSha256(b"x-hub-signature-256"), b"a text of sixteen"),
        ),
        ("bearer", SECRET, SECRET, None),
    ],
)
def test_a_file_counts_as_what_the_named_sender_shows_itself_by(
    tmp_path: Path, scheme: str, content: str, token: str | None, signing: EventSigner | None
) -> None:
    given, old = written(tmp_path, f"# now\n{content}\n", "given"), tmp_path / "old"
    sender = f"[senders.a]\nscheme = '{scheme}'\nsecrets_file = '{old}'\ncatalogs = {{ theirs = 'prod' }}\n"
    flags = ServiceOptions(config=written(tmp_path, CATALOGS + sender), token_file=given)
    found = event_access(flags, None, "a")
    assert (found.access.token, found.access.signer, found.sender_catalog, found.catalog) == (
        token,
        signing,
        "theirs",
        "prod",
    )


def test_a_secret_that_signs_is_not_shown_as_a_token(tmp_path: Path) -> None:
    file = written(tmp_path, SECRET, "given")
    with pytest.raises(
        ConfigurationError, match="found a secret that signs; say which sender's, --sender NAME"
    ) as caught:
        event_access(ServiceOptions(url="http://h", token_file=file), "theirs", None)
    assert SECRET not in str(caught.value)


def test_who_shows_nothing_needs_no_file(tmp_path: Path) -> None:
    file = written(tmp_path, "x", "given")
    sender = "[senders.a]\nscheme = 'none'\ncatalog = 'prod'\n"
    with pytest.raises(ConfigurationError, match="--token-file: expected none, as the sender a shows nothing"):
        event_access(ServiceOptions(config=written(tmp_path, CATALOGS + sender), token_file=file), None, "a")
