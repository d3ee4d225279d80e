"""Every error number of the system at every step of a publish: what may pass is tried again, whatever the number."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from sfn.catalogs.pyiceberg import failure_of as library_refused
from sfn.catalogs.rest.errors import failure_of_transport
from sfn.errors import ErrorScope, ExternalError, Transient
from sfn.storage import RequestFailed
from sfn.storage.local import StoreRoot
from sfn.storage.object_store import ERROR_MAP, HttpPool
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
