"""The error tree, error numbers of the system and causes of dead letters."""

from __future__ import annotations

import copy
import errno
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, cast

import aiohttp
import pytest

import sfn
from sfn import errors
from sfn.catalogs.pyiceberg import failure_of as library_refused
from sfn.catalogs.rest.errors import failure_of_transport
from sfn.domain.jobs import DeadLetterReason
from sfn.errors import (
    ErrorScope,
    ExternalError,
    ForbiddenForTable,
    LocationRefused,
    Permanent,
    Rejected,
    SfnError,
    Transient,
    UnaddressableTable,
    Unreachable,
)
from sfn.inbox.model import cause_of
from sfn.storage import RequestFailed
from sfn.storage.local import StoreRoot
from sfn.storage.remote_store import ERROR_MAP, HttpPool
from sfn.worker.worker import SHORTAGE_ERRNOS, UnexpectedErrorKind, classify_error

NUMBERS = sorted(errno.errorcode)
OF_THE_PATH = {
    errno.ENOTDIR: ErrorScope.TABLE,
    errno.EISDIR: ErrorScope.TABLE,
    errno.ELOOP: ErrorScope.TABLE,
    errno.ENXIO: ErrorScope.TABLE,
    errno.ENAMETOOLONG: ErrorScope.TABLE,
    errno.EILSEQ: ErrorScope.TABLE,
    errno.EFBIG: ErrorScope.STORE,
}
"""The only numbers of a local file that will not pass: what lies at the path, or its name; a limit of the process."""
OF_THE_PROCESS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ENOLCK}
VERBS = ["read", "write", "delete", "list"]


def local(tmp_path: Path, number: int, verb: str) -> ExternalError:
    """The trouble of a local store at a step that the system answers so."""

    def done(_: str, __: str) -> None:
        raise OSError(number, "everywhere")

    root = StoreRoot(f"file://{tmp_path}", done)
    root.note_permitted(verb, f"file://{tmp_path}/other/a.ver")
    with pytest.raises(ExternalError) as trouble, root.map_os_errors(f"file://{tmp_path}/table/a.ver", verb):
        raise OSError(number, "no")
    return trouble.value


@pytest.mark.parametrize("verb", VERBS)
def test_a_local_file_is_tried_again_unless_its_path_is_wrong(tmp_path: Path, verb: str) -> None:
    found = {number: local(tmp_path, number, verb) for number in NUMBERS}
    lasting = {number: trouble.scope for number, trouble in found.items() if not isinstance(trouble, Transient)}
    assert lasting == OF_THE_PATH
    assert {number for number, trouble in found.items() if trouble.scope is ErrorScope.PROCESS} == OF_THE_PROCESS
    for number, trouble in found.items():
        assert errno.errorcode[number] in trouble.found
        assert trouble.remedy or errno.errorcode[number]


def connection_errors(number: int) -> list[Exception]:
    """What aiohttp makes of an error of the system: none without a connection, or one that broke."""
    key = cast("Any", aiohttp.client_reqrep.ConnectionKey("store", 443, True, True, None, None, None))
    error = OSError(number, "no")
    return [aiohttp.ClientConnectorError(key, error), aiohttp.ClientOSError(number, "no"), error]


class Session:
    """What `Pool` asks."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def request(self, *_: object, **__: object) -> object:
        raise self._error


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
async def test_a_request_to_an_object_store_is_tried_again(number: int) -> None:
    for error in connection_errors(number):
        pool = HttpPool()
        pool._session = cast("Any", Session(error))  # noqa: SLF001 - the one step that no server can refuse so
        with pytest.raises(RequestFailed) as refused:
            await pool.exchange("GET", "https://store/key", {})
        meaning = ERROR_MAP[refused.value.kind]
        assert (meaning.error, meaning.scope) == (Transient, ErrorScope.STORE)


CATALOGS: Mapping[str, Callable[[Exception], Any]] = {
    "REST": lambda error: failure_of_transport("catalog", error, 30),
    "PyIceberg": lambda error: library_refused("catalog", error, expected="a table", loading=True),
}


@pytest.mark.parametrize("catalog", CATALOGS)
@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
def test_a_request_to_a_catalog_is_tried_again(catalog: str, number: int) -> None:
    for error in connection_errors(number):
        refusal = CATALOGS[catalog](error)
        assert not refusal.permanent
        assert isinstance(refusal.to_error(ErrorScope.CATALOG, ()), Transient)


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
def test_what_no_adapter_foresaw_is_tried_again(number: int) -> None:
    wanted = UnexpectedErrorKind.SHORTAGE if number in SHORTAGE_ERRNOS else UnexpectedErrorKind.TRANSIENT
    assert {classify_error(error) for error in connection_errors(number) if isinstance(error, OSError)} <= {wanted}


BRANCH = 4
"""Columns that a level of the drawing takes."""


def drawn() -> Iterator[tuple[str, str]]:
    """Every error in the drawing, with the one above it."""
    above: list[str] = [SfnError.__name__]
    for margin, name in re.findall(r"^ {4}([ │]*)[├└] (\w+)", errors.__doc__ or "", re.MULTILINE):
        above = [*above[: len(margin) // BRANCH + 1], name]
        yield name, above[-2]


def derived(base: type[SfnError]) -> Iterator[tuple[str, str]]:
    """Every error of the project that more than one module knows, with its base."""
    for error in base.__subclasses__():
        if not error.__name__.startswith("_"):
            yield error.__name__, base.__name__
            yield from derived(error)


def test_the_drawing_shows_every_error_below_its_base() -> None:
    for module in walk_packages(sfn.__path__, "sfn."):
        if module.name != "sfn.__main__":
            import_module(module.name)
    assert sorted(drawn()) == sorted(derived(SfnError))


CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SfnError)]


def made(kind: type[SfnError]) -> SfnError:
    """An error of a class, all of whose attributes say something."""
    make: Callable[..., SfnError] = kind
    if issubclass(kind, Rejected):
        make = partial(make, status=413)
    elif issubclass(kind, ExternalError) and not issubclass(kind, LocationRefused | UnaddressableTable):
        make = partial(make, scope=ErrorScope.CATALOG, retry_after=2.5)
    return make("s3://lake/x", expected="a document", found="none", remedy="look")


def pickled(error: SfnError, protocol: int) -> object:
    return pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own


WAYS: list[Callable[[SfnError], object]] = [
    copy.copy,
    copy.deepcopy,
    *(partial(pickled, protocol=number) for number in range(pickle.HIGHEST_PROTOCOL + 1)),
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_survives_being_sent_to_another_process(kind: type[SfnError]) -> None:
    error = made(kind)
    error.add_note("while reading")
    for way in WAYS:
        again = way(error)
        assert type(again) is kind
        assert again is not error
        assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_an_error_of_a_worker_process_arrives() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(Unreachable, match="fsspec has no driver"):
        pool.submit(sfn.resolve, "nonsense://lake/orders").result(60)


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
def test_a_letter_that_says_no_cause_has_what_its_reason_means(detail: str) -> None:
    assert cause_of(DeadLetterReason.POISON, detail).startswith("its attempts ended the process")
    assert all(cause_of(reason, "") for reason in DeadLetterReason)
