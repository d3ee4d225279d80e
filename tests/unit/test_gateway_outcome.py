"""What an answer to a change says of it."""

from __future__ import annotations

import pytest

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.gateway.commits import is_outcome_known, is_success, needs_check, notifications_of
from sfn.gateway.routes import CatalogChange, ChangeKind

OLD, NEW = TableIdentifier("prod", ("n",), "t"), TableIdentifier("prod", ("n",), "u")
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
    assert [is_outcome_known(status) for status in statuses] == [known] * len(statuses)
    assert [needs_check(status) for status in statuses] == [news] * len(statuses)
    assert [is_success(status) for status in statuses] == [status // 100 == 2 for status in statuses]


@pytest.mark.parametrize(
    ("change", "named", "told"),
    [
        (
            CatalogChange(ChangeKind.NOTIFICATION, "", "n", "t"),
            (OLD,),
            [Notification(OLD, "g", min_metadata_location=HERE)],
        ),
        (CatalogChange(ChangeKind.RESTORE, "w"), (), [Notification(CatalogName("prod"), "g")]),
        (
            CatalogChange(ChangeKind.CREATE, "", "n"),
            (OLD,),
            [Notification(OLD, "g", min_metadata_location=HERE, origin=TableOrigin.CREATE)],
        ),
        (
            CatalogChange(ChangeKind.REGISTER, "", "n"),
            (OLD,),
            [Notification(OLD, "g", min_metadata_location=HERE, origin=TableOrigin.REGISTER)],
        ),
        (CatalogChange(ChangeKind.COMMIT, "", "n", "t"), (OLD,), [Notification(OLD, "g", min_metadata_location=HERE)]),
        (CatalogChange(ChangeKind.DROP, "", "n", "t"), (OLD,), [Notification(OLD, "g", drop=True)]),
        (
            CatalogChange(ChangeKind.DROP, "", "n", "t", purge=True),
            (OLD,),
            [Notification(OLD, "g", drop=True, purge=True)],
        ),
        (CatalogChange(ChangeKind.UNREGISTER, "", "n", "t"), (OLD,), [Notification(OLD, "g", drop=True)]),
        (
            CatalogChange(ChangeKind.RENAME, ""),
            (OLD, NEW),
            [Notification(OLD, "g", renamed_to=NEW), Notification(NEW, "g", renamed_from=OLD)],
        ),
        (
            CatalogChange(ChangeKind.TRANSACTION, ""),
            (OLD, NEW),
            [Notification(OLD, "g", min_metadata_location=HERE), Notification(NEW, "g", min_metadata_location=HERE)],
        ),
        (CatalogChange(ChangeKind.NAMESPACE, "", "n"), (), [Notification(CatalogName("prod"), "g")]),
        (CatalogChange(ChangeKind.TRANSACTION, ""), (), [Notification(CatalogName("prod"), "g")]),
    ],
)
def test_each_change_tells_of_its_tables(
    change: CatalogChange, named: tuple[TableIdentifier, ...], told: list[Notification]
) -> None:
    assert notifications_of(change, named, "prod", "g", HERE, b"") == told


@pytest.mark.parametrize(
    "kind", [ChangeKind.CREATE, ChangeKind.REGISTER, ChangeKind.COMMIT, ChangeKind.DROP, ChangeKind.UNREGISTER]
)
def test_several_readings_of_one_path_are_guesses(kind: ChangeKind) -> None:
    """A name that is read in one way, or that a body says level by level, is none."""
    readings = (TableIdentifier("prod", ("a.b",), "t"), TableIdentifier("prod", ("a", "b"), "t"))
    told = notifications_of(CatalogChange(kind, "", "a.b", "t"), readings, "prod", "g", HERE, b"")
    assert [(hint.subject, hint.is_guessed) for hint in told] == [(name, True) for name in readings]


def test_what_was_said_is_kept_for_who_asks() -> None:
    (hint,) = notifications_of(
        CatalogChange(ChangeKind.COMMIT, "", "n", "t"), (OLD,), "prod", "g", None, "POST /v1/… 200".encode()
    )
    assert hint.body == b"POST /v1/\xe2\x80\xa6 200"
