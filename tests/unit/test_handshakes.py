"""What the log is told of TLS handshakes that fail: why, and seldom."""

from __future__ import annotations

import ssl

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from sfn.http.server import Certificate, LoggedHandshake
from sfn.telemetry.logs import LOG_INTERVAL, LogThrottle
from tests.unit.certificates import Authority, Files, shown


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Files:
    return Files(tmp_path_factory.mktemp("tls"), authority.sign())


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(LoggedHandshake, "throttle", LogThrottle(hands))
    return hands


@pytest.fixture
def context(files: Files) -> ssl.SSLContext:
    return Certificate(files.chain, files.key).context


def greeted(context: ssl.SSLContext, greeting: bytes) -> None:
    """A client says something that is no TLS."""
    incoming = ssl.MemoryBIO()
    server = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    incoming.write(greeting)
    with pytest.raises(ssl.SSLError):
        server.do_handshake()


def told(records: list[EventDict]) -> list[tuple[object, ...]]:
    return [(one["log_level"], one["event"], one["why"], one["left_out"]) for one in records]


def test_a_client_that_speaks_no_tls_is_told_once_a_second(context: ssl.SSLContext, hands: Hands) -> None:
    with capture_logs() as records:
        for _ in range(100):
            greeted(context, b"GET / HTTP/1.1\r\n\r\n")
        hands.now += LOG_INTERVAL
        greeted(context, b"GET / HTTP/1.1\r\n\r\n")
    kind = ("warning", "TLS handshake failed", "http request")
    assert told(records) == [(*kind, 0), (*kind, 99)]


@pytest.mark.usefixtures("hands")
def test_a_client_that_does_not_trust_the_certificate_is_told_beside_others(context: ssl.SSLContext) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = Authority().trust().wrap_bio(to_client, to_server, server_hostname="localhost")
    server = context.wrap_bio(to_server, to_client, server_side=True)
    with capture_logs() as records:
        greeted(context, b"GET / HTTP/1.1\r\n\r\n")
        for side in (client, server):
            with pytest.raises(ssl.SSLWantReadError):
                side.do_handshake()
        with pytest.raises(ssl.SSLCertVerificationError):
            client.do_handshake()
        with pytest.raises(ssl.SSLError):
            server.do_handshake()
    assert [one["why"] for one in records] == ["http request", "tlsv1 alert unknown ca"]


@pytest.mark.usefixtures("hands")
def test_a_handshake_that_succeeds_is_not_told(context: ssl.SSLContext, authority: Authority) -> None:
    with capture_logs() as records:
        shown(context, authority.trust())
    assert records == []
