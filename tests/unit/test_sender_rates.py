"""How often each sender may ask."""

from __future__ import annotations

from sfn.formats.event import Sender
from sfn.http.senders import Keyring, Senders

SENDERS = {name: Sender(name, {name: "prod"}) for name in ("etl", "spark")}


def test_without_limits_any_number_of_requests_may_come() -> None:
    senders = Senders(Keyring({}), {}, SENDERS["etl"])
    assert senders.least_rate is None
    assert {senders.seconds_to_wait(SENDERS["etl"]) for _ in range(1_000)} == {None}


def test_each_sender_has_a_limit_of_its_own() -> None:
    now = [0.0]
    senders = Senders(Keyring({}), {}, rates={"etl": 10, "spark": 20}, monotonic=lambda: now[0])
    assert [senders.seconds_to_wait(SENDERS["etl"]) for _ in range(2)] == [None, 6.0]
    assert [senders.seconds_to_wait(SENDERS["spark"]) for _ in range(3)] == [None, None, 3.0]
    now[0] = 6.1
    assert senders.seconds_to_wait(SENDERS["etl"]) is None
    assert senders.least_rate == 10
