"""What errors under PyIceberg mean: told by type and code, with the cause that PyIceberg hides."""

from __future__ import annotations

import sqlite3
import threading
from typing import Any

import anyio
import pytest
import requests
import sqlalchemy.exc
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ParamValidationError
from hive_metastore.ttypes import MetaException
from pyiceberg import exceptions
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from thrift.transport.TTransport import TTransportException

from sfn.catalogs import UnlistedNamespace, pyiceberg
from sfn.domain.catalog_answer import NoSuchTable
from sfn.errors import ErrorScope, Permanent, Transient
from tests.unit.library_ground import ORDERS, PRIVATE, planned, trouble_of

LOCKED = sqlalchemy.exc.OperationalError("SELECT 1", {}, sqlite3.OperationalError("database is locked"))
NO_COLUMN = sqlalchemy.exc.ProgrammingError("SELECT 1", {}, sqlite3.ProgrammingError("no such column"))
T, P = Transient, Permanent
TABLE, CATALOG = ErrorScope.TABLE, ErrorScope.CATALOG


def aws(code: str, status: int = 400) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": "told so"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "GetTable")


def hidden(outer: Exception, inner: Exception) -> Exception:
    outer.__context__ = inner
    return outer


ERRORS: list[tuple[Exception, type[Exception], ErrorScope]] = [
    (LOCKED, T, CATALOG),
    (sqlalchemy.exc.TimeoutError(), T, CATALOG),
    (NO_COLUMN, P, TABLE),
    (sqlalchemy.exc.DataError("", {}, Exception()), T, TABLE),
    (NoCredentialsError(), P, CATALOG),
    (EndpointConnectionError(endpoint_url="https://glue"), T, CATALOG),
    (ParamValidationError(report="too long"), P, TABLE),
    (aws("ExpiredTokenException"), P, CATALOG),
    (aws("UnrecognizedClientException"), P, CATALOG),
    (aws("ThrottlingException"), T, CATALOG),
    (aws("Unheard", 429), T, CATALOG),
    (aws("Unheard", 503), T, TABLE),
    (aws("Unheard", 400), T, TABLE),
    (aws("InvalidInputException"), P, TABLE),
    # Of one table, which must not die of a grant that was revoked by mistake.
    (aws("AccessDeniedException"), T, TABLE),
    (exceptions.ForbiddenError(), T, TABLE),
    # As PyIceberg's catalog of DynamoDB does: that error has no such attribute.
    (hidden(AttributeError("message"), aws("ProvisionedThroughputExceededException")), T, CATALOG),
    (exceptions.UnauthorizedError(), P, CATALOG),
    (exceptions.OAuthError(), P, CATALOG),
    (exceptions.TooManyRequestsError(), T, CATALOG),
    (exceptions.ServiceUnavailableError(), T, TABLE),
    (exceptions.BadRequestError(), P, TABLE),
    (exceptions.NotInstalledError(), P, CATALOG),
    (requests.ConnectionError(), T, CATALOG),
    (requests.ReadTimeout(), T, CATALOG),
    (requests.exceptions.JSONDecodeError("", "", 0), T, TABLE),
    (TTransportException(), T, CATALOG),
    (MetaException("no"), T, TABLE),
    (ConnectionRefusedError(), T, CATALOG),
    (TimeoutError(), T, CATALOG),
    (KeyError("parameters"), T, TABLE),
]


NAMES = [f"{number}: {type(error).__name__}" for number, (error, _, _) in enumerate(ERRORS)]


@pytest.mark.parametrize(("error", "kind", "scope"), ERRORS, ids=NAMES)
async def test_an_error_of_one_table_is_its_own_while_the_catalog_answers(
    error: Exception, kind: type[Exception], scope: ErrorScope
) -> None:
    def plan(_: NoopCatalog, verb: str) -> list[str]:
        if verb == "load":
            raise error
        return []

    async with planned(plan) as catalog:
        trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (kind, scope)
    assert trouble.remedy


@pytest.mark.parametrize("error", [KeyError(), aws("AccessDeniedException"), exceptions.ServerError()])
async def test_an_error_of_every_question_is_the_catalogs(error: Exception) -> None:
    questions: list[str] = []

    def plan(_: NoopCatalog, verb: str) -> None:
        questions.append(verb)
        if verb != "close":
            raise error

    async with planned(plan) as catalog:
        trouble = await trouble_of(catalog)
    assert trouble.scope is ErrorScope.CATALOG
    assert "; and of catalog lake: list" in trouble.found
    assert questions.count("namespaces") == 1


async def test_many_who_meet_the_same_error_share_the_question_that_decides() -> None:
    together, pause = threading.Barrier(8), threading.Event()
    questions: list[str] = []

    def plan(_: NoopCatalog, verb: str) -> list[str]:
        questions.append(verb)
        if verb == "load":
            together.wait(5)
            raise KeyError
        pause.wait(0.2)
        return []

    async with planned(plan, max_in_flight=together.parties) as catalog, anyio.create_task_group() as tasks:
        for _ in range(together.parties):
            tasks.start_soon(trouble_of, catalog)
    assert questions.count("namespaces") < together.parties


async def test_a_namespace_that_may_not_be_listed_is_withheld() -> None:
    def plan(_: NoopCatalog, verb: str) -> list[tuple[str, ...]]:
        if verb == "tables":
            raise aws("AccessDeniedException")
        return [("sales",)]

    async with planned(plan) as catalog:
        (found,) = [one async for one in catalog.tables()]
        assert isinstance(found, UnlistedNamespace)
        assert found.namespace == ("sales",)
        with pytest.raises(Permanent) as caught:
            await catalog.is_listed(ORDERS)
    assert caught.value.scope is ErrorScope.TABLE


async def test_no_message_tells_a_secret() -> None:
    def plan(_: NoopCatalog, verb: str) -> None:
        if verb != "close":
            raise ConnectionError(f"no route to postgresql://u:{PRIVATE}@host\n")

    async with planned(plan) as catalog:
        trouble = await trouble_of(catalog)
    assert "no route to postgresql://u:***@host" in trouble.found


async def test_what_is_gone_is_told_by_the_service_below() -> None:
    def gone(_: NoopCatalog, verb: str) -> list[str]:
        if verb == "load":
            raise NoSuchTableError from aws("EntityNotFoundException")
        return []

    async with planned(gone) as catalog:
        assert await catalog.load(ORDERS, None) == NoSuchTable()

    # As PyIceberg's catalog of DynamoDB does, whether an item is missing or the table of all items.
    missing = ValueError()
    missing.__cause__ = aws("ResourceNotFoundException")

    def catalog_gone(_: NoopCatalog, verb: str) -> list[str]:
        if verb == "load":
            raise NoSuchTableError from missing
        return []

    async with planned(catalog_gone) as catalog:
        trouble = await trouble_of(catalog)
    assert trouble.scope is ErrorScope.CATALOG


def test_a_database_error_is_told_without_its_statement() -> None:
    refusal = pyiceberg.failure_of("there", LOCKED, expected="an answer")
    assert refusal.found == "OperationalError: database is locked"
