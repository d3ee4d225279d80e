"""The client of the command line: address, credentials and requests."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
import trustme
from pydantic_core import to_jsonable_python

from sfn.admin.schemas import AdoptRequest, DeadLetterCriteria, DeadLetterSelection
from sfn.cli.client import (
    MAX_ATTEMPTS,
    MAX_WAIT,
    CatalogSender,
    ServiceAccess,
    ServiceClient,
    UnknownToService,
    actor_name,
    admin_access,
    event_access,
    find_sender,
    read_first_token,
)
from sfn.cli.options import EventSigner, ServiceOptions
from sfn.clock import SystemClock
from sfn.domain.jobs import DeadLetterReason
from sfn.errors import SfnError
from sfn.http.signature import HmacSha256, StandardWebhooks
from sfn.settings import load, load_client, local_url
from sfn.settings.sections import ListenerSettings
from sfn.settings.sources import ConfigurationError
from tests.unit.admin_server import LETTER, NOON, ORDERS, PROD, WELL, AdminServer, Asked, Reply, admin_server, copied
from tests.unit.webhooks import GITHUB, KEY, SECRET, signer

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
    with pytest.raises(ConfigurationError, match="pass --url"):
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
    assert "pass a configuration (--config FILE)" in complaint(ServiceOptions())


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
        (None, None, "--catalog: expected one of dev, prod, found none"),
        ("prd", None, "--catalog: expected a catalog of a sender (dev, prod), found prd"),
        (None, "c", "--sender: expected a configured sender (a, b), found c"),
        ("dev", "a", "--catalog: expected a catalog of a sender (prod), found dev"),
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
    with pytest.raises(ConfigurationError, match="with a secret in its first line, found none of whsec_ and") as caught:
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
        ConfigurationError, match="found a signing secret; pass the sender, too: --sender NAME"
    ) as caught:
        event_access(ServiceOptions(url="http://h", token_file=file), "theirs", None)
    assert SECRET not in str(caught.value)


def test_who_shows_nothing_needs_no_file(tmp_path: Path) -> None:
    file = written(tmp_path, "x", "given")
    sender = "[senders.a]\nscheme = 'none'\ncatalog = 'prod'\n"
    with pytest.raises(ConfigurationError, match="--token-file: expected no file: the sender a has no token"):
        event_access(ServiceOptions(config=written(tmp_path, CATALOGS + sender), token_file=file), None, "a")


STATUS = Reply(200, to_jsonable_python(WELL))


@pytest.fixture(name="server")
def fixture_server() -> Iterator[AdminServer]:
    with admin_server() as server:
        server.tell("GET /admin/v1/status", STATUS)
        server.tell("GET /livez", Reply(200, {}))
        yield server


@pytest.fixture(name="slept")
def fixture_slept() -> list[float]:
    return []


@pytest.fixture(name="service")
def fixture_service(server: AdminServer, slept: list[float]) -> Iterator[ServiceClient]:
    with ServiceClient(ServiceAccess(server.url, "secret"), slept.append) as service:
        yield service


def refusal(service: ServiceClient) -> str:
    with pytest.raises(SfnError) as caught:
        service.status()
    assert "secret" not in str(caught.value)
    return str(caught.value)


def test_it_is_shown_the_token_and_who_asks(server: AdminServer, service: ServiceClient) -> None:
    assert service.status() == WELL
    (asked,) = server.asked
    assert asked.headers["Authorization"] == "Bearer secret"
    assert asked.headers["From"] == actor_name()
    assert asked.headers["User-Agent"] == f"sfn/{version('iceberg-sfn')}"


def test_a_catalog_that_is_not_configured_is_wrong_usage_with_the_nearest_name(service: ServiceClient) -> None:
    service.check_configured("prod")
    with pytest.raises(ConfigurationError) as refused:
        service.check_configured("prd")
    assert str(refused.value.problems[0]) == (
        "CATALOG: expected a configured catalog (prod), found prd; did you mean prod?"
    )


def test_who_asks_fits_into_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "jürgen smith")
    assert actor_name() == f"j?rgen?smith@{socket.gethostname()}"


def test_a_503_that_says_when_is_asked_again(server: AdminServer, service: ServiceClient, slept: list[float]) -> None:
    server.tell(
        "GET /admin/v1/status", Reply(503, {}, {"Retry-After": "2"}), Reply(503, {}, {"Retry-After": "900"}), STATUS
    )
    assert service.status() == WELL
    assert slept == [2.0, MAX_WAIT]


def test_an_event_that_is_sent_again_is_the_same_message(server: AdminServer, slept: list[float]) -> None:
    taken = Reply(202, {"accepted": 1, "duplicates": 0, "ignored": 0})
    later = [Reply(status, {"detail": "later"}, {"Retry-After": "3"}) for status in (503, 429)]
    server.tell("POST /v1/events", *later, taken)
    signing = EventSigner(StandardWebhooks(), KEY.secret)
    with ServiceClient(ServiceAccess(server.url, signer=signing), slept.append) as service:
        assert service.post_events({"namespace": ["größe"], "name": "orders"}).accepted == 1
    assert slept == [3.0, 3.0]
    first, *others = server.asked
    assert {(one.body, one.headers["webhook-id"]) for one in others} == {(first.body, first.headers["webhook-id"])}
    assert signer(lowered(first), first.body, now=SystemClock().now()) == "main"
    assert signer(lowered(first), first.body + b" ", now=SystemClock().now()) is None
    assert first.headers["Content-Type"] == "application/json"
    assert "Authorization" not in first.headers
    assert "MfKQ" not in repr(signing)


def test_each_event_has_a_signature_and_an_id_of_its_own(server: AdminServer) -> None:
    server.tell("POST /v1/events", Reply(202, {"accepted": 1, "duplicates": 0, "ignored": 0}))
    with ServiceClient(ServiceAccess(server.url, signer=EventSigner(StandardWebhooks(), KEY.secret))) as service:
        for _ in range(2):
            service.post_events({"namespace": ["sales"], "name": "orders"})
    assert len({one.headers["webhook-id"] for one in server.asked}) == 2


def test_a_signature_that_is_refused_may_be_the_clocks_doing(server: AdminServer) -> None:
    server.tell("POST /v1/events", Reply(401, {"detail": "a valid bearer token is needed"}))
    with (
        ServiceClient(ServiceAccess(server.url, signer=EventSigner(GITHUB, b"x"))) as service,
        pytest.raises(SfnError) as caught,
    ):
        service.post_events({})
    assert caught.value.expected == "a valid, recent signature"
    assert caught.value.remedy == "pass the --config of this service, and check the clocks of both machines"


def test_a_sender_that_is_too_quick_is_told_of_its_limit(server: AdminServer, slept: list[float]) -> None:
    server.tell("POST /v1/events", Reply(429, {"detail": "too many"}, {"Retry-After": "2"}))
    with ServiceClient(ServiceAccess(server.url, "secret"), slept.append) as service, pytest.raises(SfnError) as caught:
        service.post_events({})
    assert (slept, "rate_limit" in caught.value.remedy) == ([2.0] * (MAX_ATTEMPTS - 1), True)


def lowered(asked: Asked) -> list[tuple[bytes, bytes]]:
    """The headers as the service gets them."""
    return [(name.lower().encode(), value.encode()) for name, value in asked.headers.items()]


def test_it_is_not_asked_for_ever(server: AdminServer, service: ServiceClient) -> None:
    server.tell("GET /admin/v1/status", Reply(503, {"detail": "the inbox is full"}, {"Retry-After": "1"}))
    said = refusal(service)
    assert "found status 503: the inbox is full; find the cause with `sfn check`, or in the service's log" in said
    assert len(server.asked) == MAX_ATTEMPTS


def test_a_503_that_does_not_say_when_is_an_answer(
    server: AdminServer, service: ServiceClient, slept: list[float]
) -> None:
    server.tell("GET /admin/v1/status", Reply(503, b"<html>"))
    assert "and no problem document" in refusal(service)
    assert slept == []


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            Reply(401, {"detail": "a valid bearer token is needed"}),
            "pass --token-file, or the --config of this service",
        ),
        (Reply(302, b"", {"Location": "http://elsewhere/"}), "set --url to the redirect's target, http://elsewhere/"),
        (Reply(500, {"title": "Internal Server Error"}), "found status 500: Internal Server Error"),
        (
            Reply(400, {"error": {"message": "No route", "code": 400}}),
            "and no problem document; another service or a proxy",
        ),
        (Reply(401, b"<html>"), "expected an sfn service, found status 401: a body of application/json, 6 bytes, "),
        (Reply(422, {"detail": "catalog:\x1b[2J"}), r"found status 422: catalog:\x1b[2J"),
        (Reply(200, {"version": "9"}), "use the `sfn` of the service's own version"),
        (Reply(200, b"<html>"), "use the `sfn` of the service's own version"),
    ],
)
def test_no_answer_says_what_to_do(server: AdminServer, service: ServiceClient, reply: Reply, said: str) -> None:
    server.tell("GET /admin/v1/status", reply)
    assert said in refusal(service)


def test_service_without_admin_routes_is_told_from_another_server(server: AdminServer, service: ServiceClient) -> None:
    server.tell("GET /admin/v1/status", Reply(404, {"detail": "Not Found"}))
    assert "set admin.token or admin.token_file in the service's configuration" in refusal(service)
    for status in (400, 404):
        server.tell("GET /livez", Reply(status, b""))
        assert "another service or a proxy answered" in refusal(service)


def test_thing_that_is_not_there_is_told_from_routes_that_are_not(server: AdminServer, service: ServiceClient) -> None:
    server.tell("GET /admin/v1/dead-letters/7", Reply(404, {"detail": "no dead letter has the id 7"}))
    with pytest.raises(UnknownToService) as caught:
        service.dead_letter(7)
    remedy = "`sfn dead-letters list --status all` shows all that the inbox still has"
    assert str(caught.value) == f"dead letter 7: expected an id of the inbox, found none; {remedy}"


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with ServiceClient(ServiceAccess(url, "secret")) as service:
        said = refusal(service)
    assert said.startswith(f"{url}: expected a running service, found Connection refused; start it with `sfn serve`")


def test_a_port_without_tls_is_told_from_one_with(server: AdminServer) -> None:
    with ServiceClient(ServiceAccess(server.url.replace("http:", "https:"), "secret")) as service:
        assert "check whether the port speaks TLS" in refusal(service)


def test_a_certificate_is_verified_and_can_be_trusted(tmp_path: Path) -> None:
    authority = trustme.CA()
    trusted, token = tmp_path / "ca.pem", tmp_path / "token"
    authority.cert_pem.write_to_path(str(trusted))
    token.write_text("secret")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with admin_server(context) as server:
        server.tell("GET /admin/v1/status", STATUS)
        with ServiceClient(ServiceAccess(server.url, "secret")) as service:
            assert "pass the certificates of its authority with --ca-file" in refusal(service)
        with ServiceClient(admin_access(ServiceOptions(url=server.url, token_file=token, ca_file=trusted))) as service:
            assert service.status() == WELL


def test_the_service_on_this_machine_is_known_by_the_certificate_of_its_configuration(tmp_path: Path) -> None:
    # Its file holds the one that signed it too.
    authority = trustme.CA().create_child_ca()
    ours, theirs = authority.issue_cert("sfn.example"), authority.issue_cert("sfn.example")
    (tmp_path / "chain.pem").write_bytes(b"".join(part.bytes() for part in ours.cert_chain_pems))
    for shown, is_known in ((ours, True), (theirs, False)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        shown.configure_cert(context)
        with admin_server(context) as server:
            server.tell("GET /admin/v1/status", STATUS)
            port = server.url.rpartition(":")[2]
            (tmp_path / "sfn.toml").write_text(
                f"[listener]\nport = {port}\ntls_certificate_file = '{tmp_path}/chain.pem'\n[admin]\ntoken = 'secret'\n"
            )
            with ServiceClient(admin_access(ServiceOptions(config=tmp_path / "sfn.toml"))) as service:
                if is_known:
                    assert service.status() == WELL
                else:
                    assert "expected a certificate that is trusted" in refusal(service)


def test_the_only_catalog_need_not_be_named(server: AdminServer, service: ServiceClient) -> None:
    assert service.resolve_catalog(None) == "prod"
    assert service.resolve_catalog("other") == "other"
    both = copied(WELL, catalogs=[PROD, copied(PROD, name="dev")])
    server.tell("GET /admin/v1/status", Reply(200, to_jsonable_python(both)))
    with pytest.raises(ConfigurationError, match="expected one of prod, dev, found none"):
        service.resolve_catalog(None)


def test_names_are_encoded_in_paths(server: AdminServer, service: ServiceClient) -> None:
    server.tell("GET /admin/v1/tables/prod/a.b%1Fc/d%20%C3%BC", Reply(200, to_jsonable_python(ORDERS)))
    assert service.table("prod", ("a.b", "c"), "d ü") == ORDERS


def test_requests_say_no_more_than_is_meant(server: AdminServer, service: ServiceClient) -> None:
    server.tell(
        "POST /admin/v1/dead-letters:replay", Reply(200, {"replayed": 1, "failed": [], "skipped": [], "next": None})
    )
    server.tell("POST /admin/v1/catalogs/prod:adopt", Reply(200, {"tables": 1}))
    service.replay(DeadLetterSelection(ids=[7]))
    service.replay(
        DeadLetterSelection(filter=DeadLetterCriteria(reason=DeadLetterReason.POISON, before=NOON), after=7, limit=1000)
    )
    service.adopt("prod", AdoptRequest(from_="theirs"))
    assert [msgspec.json.decode(asked.body) for asked in server.asked] == [
        {"ids": [7]},
        {"filter": {"reason": "poison", "before": "2026-08-21T12:00:00Z"}, "after": 7, "limit": 1000},
        {"from": "theirs"},
    ]


def test_a_letter_has_its_event(server: AdminServer, service: ServiceClient) -> None:
    event = {"path": "/v1/events", "content_type": None, "size": 2, "body": "{}"}
    server.tell("GET /admin/v1/dead-letters/7", Reply(200, {**to_jsonable_python(LETTER), "request": event}))
    found = service.dead_letter(7).request
    assert found is not None
    assert found.body == "{}"
