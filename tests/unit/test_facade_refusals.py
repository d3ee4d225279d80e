"""How a facade tells clients of a refusal."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import sfn
from sfn import errors
from sfn.errors import (
    Ambiguous,
    Dropped,
    ErrorScope,
    ExternalError,
    FatalError,
    LocationRefused,
    MalformedDocument,
    MalformedMetadata,
    NotFound,
    NotInstalled,
    NotPermitted,
    Rejected,
    SfnError,
    Stale,
    Transient,
    UnaddressableTable,
    Unreachable,
    Unsafe,
    WrongTable,
)
from sfn.facade.routes import NO_NAMESPACE, NO_TABLE, NotInCatalog, status_and_exception
from sfn.telemetry.metrics import Metrics


def made(kind: type[SfnError]) -> SfnError:
    if issubclass(kind, NotInCatalog):
        return kind("x", NO_NAMESPACE, expected="a", found="b")
    if issubclass(kind, Rejected):
        return kind("x", status=400, expected="a", found="b")
    if issubclass(kind, ExternalError) and not issubclass(kind, LocationRefused | UnaddressableTable):
        return kind("x", scope=ErrorScope.STORE, expected="a", found="b")
    return kind("x", expected="a", found="b")


def test_each_refusal_says_what_its_client_is_to_do() -> None:
    answers = {kind: status_and_exception(made(kind)) for kind in (
        *(NotFound, Dropped, NotInCatalog, Rejected, Unsafe, NotPermitted, Ambiguous, NotInstalled, Unreachable),
        Transient,
        *(Stale, WrongTable, MalformedDocument, MalformedMetadata, FatalError, LocationRefused),
    )}  # fmt: skip
    assert {kind: (int(status), name) for kind, (status, name) in answers.items()} == {
        NotFound: (404, NO_TABLE),
        Dropped: (404, NO_TABLE),
        NotInCatalog: (404, NO_NAMESPACE),
        Rejected: (400, None),
        Unsafe: (403, None),
        NotPermitted: (500, None),
        Ambiguous: (400, None),
        NotInstalled: (500, None),
        Unreachable: (503, None),
        Transient: (503, None),
        Stale: (500, None),
        WrongTable: (500, None),
        MalformedDocument: (500, None),
        MalformedMetadata: (500, None),
        FatalError: (503, None),
        LocationRefused: (500, None),
    }


def test_each_answer_has_a_body_and_a_count() -> None:
    for kind in (NotFound, Unsafe, Ambiguous, Stale, Unreachable):
        status, name = status_and_exception(made(kind))
        assert errors.iceberg_error_body(status, "why", name)
    readers = Metrics(version="1", catalogs=["prod"]).readers
    for code in (200, 304, 401, 405, 418, 599):
        readers.count_answer(code)


def test_every_refusal_of_a_reader_is_told() -> None:
    for module in walk_packages(sfn.reader.__path__, "sfn.reader."):
        import_module(module.name)
    kinds, left = set(), [SfnError]
    while left:
        kinds.update(left[-1].__subclasses__())
        left += left.pop().__subclasses__()
    for kind in kinds:
        if kind.__module__ == "sfn.errors":
            status, _ = status_and_exception(made(kind))
            assert status in errors.ICEBERG_ERROR_TYPES
