"""A service that does not answer costs an audit a few tries, not one for every batch of every catalog."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from sfn.audit.spark_job import MAX_FAILURES_IN_A_ROW, AuditNotification, EventPoster
from sfn.cli.client import EventAccess, ServiceAccess


class Deaf:
    """Takes connections, and ends each at once; counts them."""

    def __init__(self) -> None:
        self.asked = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection:
                if connection.recv(1) == b".":
                    return
                self.asked += 1

    def close(self) -> None:
        with socket.create_connection(self._listening.getsockname()) as last:
            last.send(b".")
        self._thread.join()
        self._listening.close()


@pytest.fixture(name="deaf")
def fixture_deaf() -> Iterator[Deaf]:
    one = Deaf()
    yield one
    one.close()


def test_who_takes_nothing_is_asked_no_more(deaf: Deaf) -> None:
    catalogs = [f"c{number}" for number in range(4 * MAX_FAILURES_IN_A_ROW)]
    teller = EventPoster({catalog: EventAccess(ServiceAccess(deaf.url), None, catalog) for catalog in catalogs})
    hints = [AuditNotification(catalog, ("ns",), f"t{number}", None) for catalog in catalogs for number in range(2)]
    assert teller.post(hints) == len(hints)
    asked = deaf.asked
    assert 0 < asked < len(catalogs)
    assert teller.post(hints) == len(hints)
    assert deaf.asked == asked
    assert deaf.url in teller.error
