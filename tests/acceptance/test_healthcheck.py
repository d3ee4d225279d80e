"""`sfn healthcheck`, as a container's health check meets it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trustme
from typing_extensions import override

from sfn.cli.main import check_answers
from sfn.errors import SfnError
from sfn.settings import local_url
from sfn.settings.sections import ListenerSettings
from tests.support.command_line import executed, forked

CATALOG = {"SFN_CATALOGS__PROD__URI": "http://catalog"}


class Alive(BaseHTTPRequestHandler):
    """Answers 200 to the one path that is right."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/livez" else 404)
        self.end_headers()

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


class Broken(Alive):
    @override
    def do_GET(self) -> None:
        self.send_response(500)
        self.end_headers()


class Silent(Alive):
    @override
    def do_GET(self) -> None:
        self.close_connection = True


@contextmanager
def answering(handler: type[Alive], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server on loopback; its port."""
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_service_that_lives_is_0_and_nothing_is_said(tmp_path: Path) -> None:
    with answering(Alive) as port:
        file = tmp_path / "sfn.toml"
        file.write_text(f"[listener]\nport = {port}\n[catalogs.prod]\nuri = 'http://catalog'\n")
        # A proxy where nobody listens.
        done = executed("healthcheck", environ={"SFN_CONFIG": str(file), "http_proxy": "http://127.0.0.1:1"})
    assert (done.status, done.out, done.err) == (0, "", "")


def test_where_nobody_listens_is_1_and_says_where_it_was_asked() -> None:
    with answering(Alive) as port:
        pass
    done = forked("healthcheck", environ={"SFN_LISTENER__PORT": str(port), **CATALOG})
    assert (done.status, done.out) == (1, "")
    assert done.err == f"http://127.0.0.1:{port}/livez: expected an answer, found Connection refused\n"


def test_wrong_settings_are_1_since_2_is_not_for_a_health_check() -> None:
    done = forked("healthcheck", environ={"SFN_LISTENER__PORT": "many", **CATALOG})
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("SFN_LISTENER__PORT: expected ")


@pytest.mark.parametrize(("handler", "found"), [(Broken, "expected 200, found 500"), (Silent, "expected an answer")])
def test_another_answer_is_told(handler: type[Alive], found: str) -> None:
    with answering(handler) as port, pytest.raises(SfnError, match=found):
        check_answers(local_url(ListenerSettings(port=port)), "/livez")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])  # noqa: S104 - not bound
def test_a_listener_on_all_addresses_is_asked_on_loopback(host: str) -> None:
    with answering(Alive) as port:
        check_answers(local_url(ListenerSettings(host=host, port=port)), "/livez")


@pytest.mark.parametrize(("host", "asked"), [("::", "::1"), ("[::]", "::1"), ("[::1]", "::1"), ("127.0.0.2", None)])
def test_an_address_is_asked_as_it_is_written_in_a_url(host: str, asked: str | None) -> None:
    with answering(Alive) as port:
        pass
    with pytest.raises(SfnError) as caught:
        check_answers(local_url(ListenerSettings(host=host, port=port)), "/livez")
    assert caught.value.where == f"http://{f'[{asked}]' if asked else host}:{port}/livez"


def test_any_free_port_can_t_be_asked() -> None:
    done = forked("healthcheck", environ={"SFN_LISTENER__PORT": "0", **CATALOG})
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("listener.port: expected the port")


def test_with_tls_any_certificate_will_do(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("sfn.example.com").configure_cert(context)
    with answering(Alive, context) as port:
        files = {"tls_certificate_file": f"{tmp_path}/tls.pem", "tls_key_file": f"{tmp_path}/tls.key"}
        check_answers(local_url(ListenerSettings.model_validate({"port": port, **files})), "/livez")
        with pytest.raises(SfnError, match="http://127"):
            check_answers(local_url(ListenerSettings(port=port)), "/livez")
