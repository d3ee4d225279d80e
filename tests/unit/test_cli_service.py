"""The service asked over HTTP: what it is shown, how long it is waited for, and what stands in the way."""

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
    ServiceAccess,
    ServiceClient,
    UnknownToService,
    actor_name,
    admin_access,
)
from sfn.cli.options import EventSigner, ServiceOptions
from sfn.clock import SystemClock
from sfn.domain.jobs import DeadLetterReason
from sfn.errors import SfnError
from sfn.http.signature import StandardWebhooks
from sfn.settings.sources import ConfigurationError
from tests.unit.admin_server import AdminServer, Asked, Reply, admin_server
from tests.unit.operators import LETTER, NOON, ORDERS, PROD, WELL, copied
from tests.unit.webhooks import GITHUB, KEY, signer

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
    assert caught.value.expected == "a signature of now"
    assert caught.value.remedy == "give the --config of that very service; and see that both machines' clocks are right"


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
    assert "found status 503: the inbox is full; see what is wrong: `sfn check` says it, or the service's log" in said
    assert len(server.asked) == MAX_ATTEMPTS


def test_a_503_that_does_not_say_when_is_an_answer(
    server: AdminServer, service: ServiceClient, slept: list[float]
) -> None:
    server.tell("GET /admin/v1/status", Reply(503, b"<html>"))
    assert "that is no problem document" in refusal(service)
    assert slept == []


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            Reply(401, {"detail": "a valid bearer token is needed"}),
            "give --token-file, or the --config of that very service",
        ),
        (Reply(302, b"", {"Location": "http://elsewhere/"}), "set --url to where it leads, http://elsewhere/"),
        (Reply(500, {"title": "Internal Server Error"}), "found status 500: Internal Server Error"),
        (Reply(400, {"error": {"message": "No route", "code": 400}}), "that is no problem document; that is not this"),
        (Reply(401, b"<html>"), "expected an sfn service, found status 401: a body of application/json, 6 bytes, "),
        (Reply(422, {"detail": "catalog:\x1b[2J"}), r"found status 422: catalog:\x1b[2J"),
        (Reply(200, {"version": "9"}), "use the `sfn` of the service's own version"),
        (Reply(200, b"<html>"), "use the `sfn` of the service's own version"),
    ],
)
def test_what_is_no_answer_says_what_to_do(
    server: AdminServer, service: ServiceClient, reply: Reply, said: str
) -> None:
    server.tell("GET /admin/v1/status", reply)
    assert said in refusal(service)


def test_a_service_without_admin_routes_is_told_from_another_server(
    server: AdminServer, service: ServiceClient
) -> None:
    server.tell("GET /admin/v1/status", Reply(404, {"detail": "Not Found"}))
    assert "set admin.token or admin.token_file in the service's configuration" in refusal(service)
    for status in (400, 404):
        server.tell("GET /livez", Reply(status, b""))
        assert "that is not this service" in refusal(service)


def test_a_thing_that_is_not_there_is_told_from_routes_that_are_not(
    server: AdminServer, service: ServiceClient
) -> None:
    server.tell("GET /admin/v1/dead-letters/7", Reply(404, {"detail": "no dead letter has the id 7"}))
    with pytest.raises(UnknownToService) as caught:
        service.dead_letter(7)
    remedy = "`sfn dead-letters list --status all` has those that are kept"
    assert str(caught.value) == f"dead letter 7: expected one that the service keeps, found none; {remedy}"


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with ServiceClient(ServiceAccess(url, "secret")) as service:
        said = refusal(service)
    assert said.startswith(f"{url}: expected a running service, found Connection refused; start it with `sfn serve`")


def test_a_port_without_tls_is_told_from_one_with(server: AdminServer) -> None:
    with ServiceClient(ServiceAccess(server.url.replace("http:", "https:"), "secret")) as service:
        assert "see whether the port speaks TLS" in refusal(service)


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
            assert "name its authority's certificates with --ca-file" in refusal(service)
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
    with pytest.raises(ConfigurationError, match="expected one of prod, dev, as there are several"):
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
