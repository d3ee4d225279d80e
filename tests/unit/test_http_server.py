"""The HTTP server: certificates, TLS handshakes and joined writes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from structlog.testing import capture_logs
from structlog.typing import EventDict
from trustme import KeyType
from typing_extensions import override

from sfn.errors import FatalError
from sfn.http.server import MAX_BUFFERED, BufferedTransport, Certificate, LoggedHandshake
from sfn.telemetry.logs import LOG_INTERVAL, LogThrottle
from tests.support.certificates import Authority, Files, Pair, shown
from tests.support.table_directory import replaced


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def old(authority: Authority) -> Pair:
    return authority.sign()


@pytest.fixture
def new(authority: Authority) -> Pair:
    return authority.sign()


@pytest.fixture
def files(tmp_path: Path, old: Pair) -> Files:
    return Files(tmp_path, old)


@pytest.fixture
def certificate(files: Files) -> Certificate:
    return Certificate(files.chain, files.key)


def test_client_gets_the_certificate(certificate: Certificate, authority: Authority, old: Pair) -> None:
    assert shown(certificate.context, authority.trust()) == old.shown


def test_client_without_sni_gets_the_certificate(certificate: Certificate, authority: Authority, old: Pair) -> None:
    trust = authority.trust()
    trust.check_hostname = False
    assert shown(certificate.context, trust, name=None) == old.shown


def test_tls_1_2_is_accepted_and_older_ones_are_not(certificate: Certificate, authority: Authority, old: Pair) -> None:
    trust = authority.trust()
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shown(certificate.context, trust) == old.shown
    assert certificate.context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_alpn_offers_http_1_1(certificate: Certificate, authority: Authority) -> None:
    trust = authority.trust()
    trust.set_alpn_protocols(["h2", "http/1.1"])
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = trust.wrap_bio(to_client, to_server, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        asks.do_handshake()
    answers = certificate.context.wrap_bio(to_server, to_client, server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        answers.do_handshake()
    asks.do_handshake()
    assert asks.selected_alpn_protocol() == "http/1.1"


def test_renewed_pair_is_used_for_new_connections(
    certificate: Certificate, files: Files, authority: Authority, new: Pair
) -> None:
    files.renew(new)
    with capture_logs() as logs:
        for _ in range(2):
            certificate.reload_if_changed()
            assert shown(certificate.context, authority.trust()) == new.shown
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("certificate and key reloaded", "info")]


@pytest.mark.parametrize("first", ["chain", "key"])
def test_old_pair_is_used_until_both_files_are_replaced(
    certificate: Certificate, files: Files, authority: Authority, old: Pair, new: Pair, first: str
) -> None:
    both = {"chain": (files.chain, new.chain), "key": (files.key, new.key)}
    replaced(*both.pop(first))
    with capture_logs() as logs:
        for _ in range(3):
            certificate.reload_if_changed()
            assert shown(certificate.context, authority.trust()) == old.shown
    (entry,) = logs
    assert (entry["event"], entry["log_level"]) == ("certificate and key not reloaded", "error")
    assert "expected a certificate and the key that belongs to it, found another key" in entry["error"]
    replaced(*both.popitem()[1])
    certificate.reload_if_changed()
    assert shown(certificate.context, authority.trust()) == new.shown


def test_files_behind_a_changed_link_are_read_again(tmp_path: Path, authority: Authority, old: Pair, new: Pair) -> None:
    """As Kubernetes does with a mounted secret: the link `..data` is replaced, what leads through it is not."""
    for name, pair in (("old", old), ("new", new)):
        (tmp_path / name).mkdir()
        Files(tmp_path / name, pair)
    data, beside = tmp_path / "..data", tmp_path / "..data_tmp"
    data.symlink_to("old")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    certificate = Certificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    beside.symlink_to("new")
    beside.replace(data)
    certificate.reload_if_changed()
    assert shown(certificate.context, authority.trust()) == new.shown


def encrypted(pair: Pair, form: PrivateFormat) -> bytes:
    key: Any = load_pem_private_key(pair.key, None)
    encoded: bytes = key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"passphrase"))
    return encoded


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


WRONG: dict[str, tuple[Callable[[Files, Pair], object], str]] = {
    "no chain": (
        lambda files, _: files.chain.rename(files.chain.with_suffix(".old")),
        "tls.crt: expected a readable file, found No such",
    ),
    "no key": (
        lambda files, _: files.key.rename(files.key.with_suffix(".old")),
        "tls.key: expected a readable file, found No such",
    ),
    "a folder": (lambda files, _: folder(files.key), "tls.key: expected a readable file, found Is a dir"),
    "an empty chain": (lambda files, _: replaced(files.chain, b""), "tls.crt: expected PEM certificates"),
    "half a chain": (
        lambda files, old: replaced(files.chain, old.chain[:200]),
        "tls.crt: expected PEM certificates: -----BEGIN CERTIFICATE-----, found something else",
    ),
    "a key as chain": (lambda files, old: replaced(files.chain, old.key), "tls.crt: expected PEM certificates"),
    "an empty key": (lambda files, _: replaced(files.key, b""), "tls.key: expected a PEM private key"),
    "half a key": (
        lambda files, old: replaced(files.key, old.key[:90]),
        "tls.key: expected a PEM private key: -----BEGIN PRIVATE KEY-----, found something else",
    ),
    "a chain as key": (lambda files, old: replaced(files.key, old.chain), "tls.key: expected a PEM private key"),
    "an encrypted key": (
        lambda files, old: replaced(files.key, encrypted(old, PrivateFormat.PKCS8)),
        "tls.key: expected a private key that is not encrypted, found one with a passphrase; decrypt it with openssl",
    ),
    "an encrypted key of old": (
        lambda files, old: replaced(files.key, encrypted(old, PrivateFormat.TraditionalOpenSSL)),
        "tls.key: expected a private key that is not encrypted",
    ),
    "a key of another kind": (
        lambda files, _: replaced(files.key, Authority().sign(KeyType.RSA).key),
        "expected a certificate and the key that belongs to it, found another key",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_pair_prevents_the_start_with_a_reason(files: Files, old: Pair, case: str) -> None:
    spoil, said = WRONG[case]
    spoil(files, old)
    with pytest.raises(FatalError) as caught:
        Certificate(files.chain, files.key)
    assert said in str(caught.value)
    assert "passphrase" not in caught.value.where


@pytest.mark.parametrize("case", WRONG)
def test_invalid_renewal_leaves_the_old_pair_active_and_is_logged_once(
    certificate: Certificate, files: Files, authority: Authority, old: Pair, case: str
) -> None:
    spoil, said = WRONG[case]
    spoil(files, old)
    with capture_logs() as logs:
        for _ in range(3):
            certificate.reload_if_changed()
            assert shown(certificate.context, authority.trust()) == old.shown
    (entry,) = logs
    assert entry["log_level"] == "error"
    assert said in entry["error"]


def test_error_text_contains_no_key(certificate: Certificate, old: Pair) -> None:
    for line in old.key.decode().splitlines()[1:-1]:
        assert line not in repr(vars(certificate))


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def tls_files(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Files:
    return Files(tmp_path_factory.mktemp("tls"), authority.sign())


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(LoggedHandshake, "throttle", LogThrottle(hands))
    return hands


@pytest.fixture
def context(tls_files: Files) -> ssl.SSLContext:
    return Certificate(tls_files.chain, tls_files.key).context


def greeted(context: ssl.SSLContext, greeting: bytes) -> None:
    """A client says something that is no TLS."""
    incoming = ssl.MemoryBIO()
    server = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    incoming.write(greeting)
    with pytest.raises(ssl.SSLError):
        server.do_handshake()


def told(records: list[EventDict]) -> list[tuple[object, ...]]:
    return [(one["log_level"], one["event"], one["why"], one["suppressed"]) for one in records]


def test_client_without_tls_is_logged_once_per_second(context: ssl.SSLContext, hands: Hands) -> None:
    with capture_logs() as records:
        for _ in range(100):
            greeted(context, b"GET / HTTP/1.1\r\n\r\n")
        hands.now += LOG_INTERVAL
        greeted(context, b"GET / HTTP/1.1\r\n\r\n")
    kind = ("warning", "TLS handshake failed", "http request")
    assert told(records) == [(*kind, 0), (*kind, 99)]


@pytest.mark.usefixtures("hands")
def test_distrusting_client_is_logged_with_its_own_reason(context: ssl.SSLContext) -> None:
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
def test_successful_handshake_is_not_logged(context: ssl.SSLContext, authority: Authority) -> None:
    with capture_logs() as records:
        shown(context, authority.trust())
    assert records == []


BIG = b"x" * MAX_BUFFERED


class Wire(asyncio.Transport):
    """A transport that notes what it is given."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 7)})
        self.written: list[bytes] = []
        self.closed_after = -1

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    @override
    def close(self) -> None:
        self.closed_after = len(self.written)

    @override
    def is_closing(self) -> bool:
        return self.closed_after >= 0


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def joined(wire: Wire) -> BufferedTransport:
    return BufferedTransport(wire, asyncio.get_running_loop())


async def test_head_and_body_are_sent_together(wire: Wire, joined: BufferedTransport) -> None:
    for part in (b"head ", b"body"):
        joined.write(part)
    assert wire.written == []
    await asyncio.sleep(0)
    joined.write(b"another")
    await asyncio.sleep(0)
    assert wire.written == [b"head body", b"another"]


async def test_large_writes_are_not_buffered(wire: Wire, joined: BufferedTransport) -> None:
    for part in (b"head ", BIG, BIG[1:]):
        joined.write(part)
    assert wire.written == [b"head " + BIG]
    await asyncio.sleep(0)
    assert wire.written == [b"head " + BIG, BIG[1:]]


async def test_buffered_data_is_sent_before_the_close(wire: Wire, joined: BufferedTransport) -> None:
    joined.write(b"the last")
    joined.close()
    await asyncio.sleep(0)
    assert (wire.written, wire.closed_after) == ([b"the last"], 1)
    assert joined.is_closing()


async def test_buffered_data_of_a_closed_connection_is_dropped(wire: Wire, joined: BufferedTransport) -> None:
    joined.write(b"too late")
    wire.close()
    await asyncio.sleep(0)
    assert wire.written == []


async def test_other_attributes_are_those_of_the_transport(joined: BufferedTransport) -> None:
    assert joined.get_extra_info("peername") == ("192.0.2.1", 7)
