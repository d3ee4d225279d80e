"""What letters have in common: the letters of one outage have one cause, whatever their tables are called."""

from __future__ import annotations

import pytest

from sfn.domain.jobs import DeadLetterReason
from sfn.errors import ErrorScope, ForbiddenForTable, LocationRefused, Permanent, SfnError
from sfn.inbox.model import cause_of


def denied(place: str) -> SfnError:
    expected, remedy = "permission to write here", "grant it to the service's principal"
    return ForbiddenForTable(
        place, scope=ErrorScope.TABLE, expected=expected, found="status 403, AccessDenied", remedy=remedy
    )


def refused(place: str) -> SfnError:
    return LocationRefused(place, expected="a location below s3://lake", found="a location below none")


def read_only(place: str) -> SfnError:
    return Permanent(
        place, scope=ErrorScope.TABLE, expected="a writable file system", found="EROFS", remedy="mount it; anew"
    )


PLACES = ["s3://lake/a/metadata/_sfn/a.ver", "s3://lake/b/metadata/_sfn/b.ver"]
DETAILS = {
    "as it is": "{}",
    "spent": "after 7 attempts since 2026-01-01 00:00:00: {}",
    "unforeseen": "prod:sales.orders: SfnError: {}",
}


@pytest.mark.parametrize("detail", DETAILS.values(), ids=DETAILS)
@pytest.mark.parametrize("made", [denied, refused, read_only])
def test_letters_of_one_kind_of_trouble_have_one_cause(made: object, detail: str) -> None:
    assert callable(made)
    causes = {cause_of(DeadLetterReason.PERMANENT, detail.format(made(place))) for place in PLACES}
    error = made("")
    assert causes == {f"expected {error.expected}, found {error.found}"}


@pytest.mark.parametrize(
    "detail", ["prod:sales.orders: KeyError: 'x'", "", "prod:a: 5 attempts in a row ended the process"]
)
def test_a_letter_that_says_no_cause_has_its_reason(detail: str) -> None:
    assert cause_of(DeadLetterReason.POISON, detail) == "poison"
