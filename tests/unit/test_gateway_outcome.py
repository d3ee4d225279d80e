"""What an answer to a change says of it."""

from __future__ import annotations

import pytest

from sfn.gateway.outcome import hints, is_done, is_known, is_news
from sfn.gateway.recognise import Change, Kind
from sfn.words import Birth, CatalogName, Hint, TableName

OLD, NEW = TableName("prod", ("n",), "t"), TableName("prod", ("n",), "u")
HERE = "s3://b/t/metadata/1.json"


@pytest.mark.parametrize(
    ("statuses", "known", "news"),
    [
        ([200, 201, 202, 204, 299], True, True),
        ([400, 401, 403], True, False),
        # A balancer's second try turns a drop that was done into a 404.
        ([404], True, True),
        # The first try may still run, or its answer is lost.
        (
            [100, 301, 307, 405, 406, 408, 409, 410, 412, 419, 422, 429, 499, 500, 501, 502, 503, 504, 520, 599],
            False,
            False,
        ),
    ],
)
def test_a_status_tells_what_is_known(statuses: list[int], *, known: bool, news: bool) -> None:
    assert [is_known(status) for status in statuses] == [known] * len(statuses)
    assert [is_news(status) for status in statuses] == [news] * len(statuses)
    assert [is_done(status) for status in statuses] == [status // 100 == 2 for status in statuses]


@pytest.mark.parametrize(
    ("change", "named", "told"),
    [
        (Change(Kind.NOTIFICATION, "", "n", "t"), (OLD,), [Hint(OLD, "g", floor=HERE)]),
        (Change(Kind.RESTORE, "w"), (), [Hint(CatalogName("prod"), "g")]),
        (Change(Kind.CREATE, "", "n"), (OLD,), [Hint(OLD, "g", floor=HERE, birth=Birth.CREATE)]),
        (Change(Kind.REGISTER, "", "n"), (OLD,), [Hint(OLD, "g", floor=HERE, birth=Birth.REGISTER)]),
        (Change(Kind.COMMIT, "", "n", "t"), (OLD,), [Hint(OLD, "g", floor=HERE)]),
        (Change(Kind.DROP, "", "n", "t"), (OLD,), [Hint(OLD, "g", drop=True)]),
        (Change(Kind.DROP, "", "n", "t", purge=True), (OLD,), [Hint(OLD, "g", drop=True, purge=True)]),
        (Change(Kind.UNREGISTER, "", "n", "t"), (OLD,), [Hint(OLD, "g", drop=True)]),
        (Change(Kind.RENAME, ""), (OLD, NEW), [Hint(OLD, "g", renamed_to=NEW), Hint(NEW, "g", renamed_from=OLD)]),
        (Change(Kind.TRANSACTION, ""), (OLD, NEW), [Hint(OLD, "g", floor=HERE), Hint(NEW, "g", floor=HERE)]),
        (Change(Kind.NAMESPACE, "", "n"), (), [Hint(CatalogName("prod"), "g")]),
        (Change(Kind.TRANSACTION, ""), (), [Hint(CatalogName("prod"), "g")]),
    ],
)
def test_each_change_tells_of_its_tables(change: Change, named: tuple[TableName, ...], told: list[Hint]) -> None:
    assert hints(change, named, "prod", "g", HERE, b"") == told


@pytest.mark.parametrize("kind", [Kind.CREATE, Kind.REGISTER, Kind.COMMIT, Kind.DROP, Kind.UNREGISTER])
def test_several_readings_of_one_path_are_guesses(kind: Kind) -> None:
    """A name that is read in one way, or that a body says level by level, is none."""
    readings = (TableName("prod", ("a.b",), "t"), TableName("prod", ("a", "b"), "t"))
    told = hints(Change(kind, "", "a.b", "t"), readings, "prod", "g", HERE, b"")
    assert [(hint.subject, hint.guessed) for hint in told] == [(name, True) for name in readings]


def test_what_was_said_is_kept_for_who_asks() -> None:
    (hint,) = hints(Change(Kind.COMMIT, "", "n", "t"), (OLD,), "prod", "g", None, "POST /v1/… 200".encode())
    assert hint.body == b"POST /v1/\xe2\x80\xa6 200"
