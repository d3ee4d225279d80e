"""What faults of PostgreSQL mean, by their codes."""

from __future__ import annotations

import pytest

from sfn.errors import ErrorScope, FatalError, OutcomeUnknown, Permanent, SfnError, Transient
from sfn.inbox.postgres.faults import LOST, MISCONFIGURED, NO_TLS, UNCERTAIN, UNREACHABLE, UNTRUSTED, PostgresFault
from sfn.inbox.postgres.refusals import refusal

WHERE = "postgresql://h/db"


def meant(code: str, *, starting: bool = False) -> SfnError:
    return refusal(PostgresFault(code, "it said so"), WHERE, starting=starting)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (LOST, "server runs"),
        (UNREACHABLE, "server runs"),
        (UNCERTAIN, "never taken twice"),
        ("08006", "server runs"),
        ("25006", "primary"),
        ("40P01", "tried again"),
        ("53100", "room"),
        ("53300", "max_connections"),
        ("53200", "memory"),
        ("55P03", "pg_stat_activity"),
        ("57P01", "server runs"),
        ("57P03", "server runs"),
        ("57014", "server runs"),
        ("58030", "log"),
    ],
)
@pytest.mark.parametrize("starting", [True, False])
def test_what_passes_by_itself_is_tried_again(code: str, remedy: str, *, starting: bool) -> None:
    trouble = meant(code, starting=starting)
    assert isinstance(trouble, Transient)
    assert (trouble.scope, trouble.retry_after) == (ErrorScope.INBOX, 1.0)
    assert (trouble.where, trouble.found) == (WHERE, f"it said so ({code})")
    assert remedy in trouble.remedy


def test_what_may_have_been_done_is_said_to_be_so() -> None:
    assert isinstance(meant(UNCERTAIN), OutcomeUnknown)
    assert not isinstance(meant(LOST), OutcomeUnknown)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("28P01", "inbox.password_file"),
        ("28000", "inbox.password_file"),
        ("3D000", "CREATE DATABASE"),
        ("42501", "GRANT CREATE"),
        (MISCONFIGURED, "percent-encoded"),
        (NO_TLS, "ssl = on"),
        (UNTRUSTED, "sslrootcert"),
    ],
)
def test_what_is_configured_wrongly_ends_a_start_but_no_process_that_works(code: str, remedy: str) -> None:
    at_a_start, later = meant(code, starting=True), meant(code)
    assert isinstance(at_a_start, FatalError)
    assert isinstance(later, Transient)
    assert remedy in at_a_start.remedy
    assert remedy in later.remedy


@pytest.mark.parametrize("code", ["42P01", "42703", "3F000", "XX001", "0A000"])
def test_what_no_waiting_heals_ends_the_process(code: str) -> None:
    assert isinstance(meant(code), FatalError)
    assert meant(code).remedy


@pytest.mark.parametrize("code", ["22021", "54000", "23505"])
def test_a_value_that_cannot_be_stored_is_its_callers_trouble(code: str) -> None:
    trouble = meant(code)
    assert isinstance(trouble, Permanent)
    assert trouble.scope is ErrorScope.INBOX
    assert isinstance(meant(code, starting=True), FatalError)
