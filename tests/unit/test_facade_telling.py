"""What a facade tells of what goes wrong: its clients, its log, and the process that it is part of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sfn.errors import FatalError, Unreachable
from sfn.facade import Namespace, TablePlace
from tests.unit.answering import ground
from tests.unit.faced import HOME, shown

AWAY = Unreachable("store", expected="an answer", found="none")


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "w"


class Raising:
    """A shelf that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def tables(self) -> Mapping[Namespace, Mapping[str, TablePlace]]:
        raise self.error

    async def find(self, namespace: Namespace, name: str, *, refresh: bool = False) -> TablePlace | None:
        raise self.error


async def test_whatever_goes_wrong_is_answered_as_clients_know_it(root: Path) -> None:
    away = ground(root, {"sfn": Raising(AWAY)})
    for path in (HOME, f"{HOME}/sales/tables/orders"):
        answer = await away.ask(path)
        assert (answer.status, answer.kind, answer.headers["retry-after"]) == (503, "ServiceUnavailableException", "1")
    wrong = ground(root, {"sfn": Raising(ZeroDivisionError("an error of ours"))})
    for path in (HOME, f"{HOME}/sales/tables/orders"):
        answer = await wrong.ask(path)
        assert (answer.status, answer.kind) == (500, "InternalServerError")
        assert "error of ours" not in answer.json["error"]["message"]
    assert wrong.counted == [500, 500]


async def test_what_can_be_caused_at_will_fills_no_log(root: Path) -> None:
    shown(root / "sales" / "orders")
    place = ground(root, {"sfn": Raising(AWAY)}, admits=lambda shown: shown == b"Bearer x")
    token = {"Authorization": "Bearer x"}
    with capture_logs() as records:
        for _ in range(3):
            assert (await place.ask("/v1/config")).status == 401
            assert (await place.ask(HOME, fields=token)).status == 503
            assert (await place.table("/etc", namespace="dir", fields=token)).status == 403
            assert (await place.table(f"{root}/none", namespace="dir", fields=token)).status == 404
    assert [(one["event"], one["status"], one["left_out"]) for one in records] == [
        ("request refused", 401, 0),
        ("not served", 503, 0),
        ("not served", 403, 0),
    ]


async def test_a_process_whose_inbox_is_broken_is_told_and_its_clients_try_again(root: Path) -> None:
    broken = FatalError("inbox", expected="a database", found="none")
    place = ground(root, {"sfn": Raising(broken)})
    assert (await place.table("orders")).status == 503
    assert place.broken == [broken]
