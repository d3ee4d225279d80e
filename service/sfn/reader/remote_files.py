"""Files of any file system or store that fsspec has a driver for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

import fsspec

from sfn.errors import NotInstalled, NotPermitted, Unreachable, Unreadable
from sfn.reader.files import FolderEntries
from sfn.sfnfile.locations import scheme_of

T = TypeVar("T")

_HEEDLESS: Final = {"http", "https"}
"""Schemes whose servers may give the whole file to who asks for a part, without their driver minding."""
_ODD: Final = re.compile("[#?]|//")
_VERSION: Final = re.compile(r"\?version[iI]d=")
"""Where s3fs and adlfs cut a name short."""
_MISSING: Final = (FileNotFoundError, NotADirectoryError)
_FORBIDDEN: Final = {401, 403}
_FORBIDDEN_BY_GCSFS: Final = "Forbidden: "
"""How gcsfs begins what it says of a missing permission: an OSError without number, status or cause."""
_ABSENT: Final = 404
_BEYOND: Final = 416
"""A range begins where the file ends: an empty file's, and what comes after the last one."""


class FsspecFileSystem:
    """The `FileSystem` of fsspec's drivers, through their blocking interface: `finish` can run what rests on it.

    How long a question may take, and how often it is asked again, is theirs, and told them by the options. They also
    list a folder as a whole, however few names are wanted of it: fsspec has no paging.

    Args:
        scheme: of the URLs that the options are for; others are opened without any.
        options: what the driver is given (fsspec's `storage_options`).
    """

    def __init__(self, scheme: str, options: Mapping[str, Any]) -> None:
        self._scheme, self._options = scheme, dict(options)
        self._opened = lru_cache(64)(self._open)

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        driver, path = self.driver_for(key)
        body = _call_driver(key, lambda: bytes(driver.cat_file(path, start=start, end=start + most)), beyond=b"")
        if body and start:
            await self._check_part(key, len(body), most, start)
        # From the beginning on, the whole is as good as the part that was asked for.
        return body if body is None else body[:most]

    async def list(self, prefix: str, limit: int) -> list[str]:
        driver, path = self.driver_for(prefix)

        def look() -> list[str]:
            # A driver may remember what it listed, and a table that was renamed since would not be there.
            driver.invalidate_cache(path)
            return _names(driver.ls(path, detail=False), limit)

        return [prefix + name for name in _call_driver(prefix, look) or []]

    async def entries(self, prefix: str) -> FolderEntries:
        """What lies directly below a prefix that ends in `/`; nothing where there is no such folder.

        Raises:
            NotPermitted, NotInstalled, Unreachable: the answer can't be had.
        """
        driver, path = self.driver_for(prefix)

        def look() -> FolderEntries:
            driver.invalidate_cache(path)
            found = driver.ls(path, detail=True)
            return FolderEntries(
                *(tuple(_names(_paths_of_kind(found, kind), len(found))) for kind in ("file", "directory"))
            )

        return _call_driver(prefix, look) or FolderEntries()

    async def size(self, key: str) -> int | None:
        driver, path = self.driver_for(key)
        found = _call_driver(key, lambda: driver.info(path))
        return None if found is None or found["type"] != "file" else int(found["size"] or 0)

    async def is_folder(self, url: str) -> bool:
        driver, path = self.driver_for(url)
        return bool(_call_driver(url, lambda: driver.isdir(path)))

    async def _check_part(self, key: str, found: int, most: int, start: int) -> None:
        """Refuse what may begin elsewhere: no part that lies behind the beginning is as long as the whole."""
        is_part = found <= most
        if is_part and scheme_of(key) in _HEEDLESS:
            is_part = found == min(most, (await self.size(key) or 0) - start)
        if not is_part:
            raise Unreachable(
                key,
                expected=f"at most {most:,} bytes from {start:,} on",
                found=f"{found:,} bytes, which may be the whole file",
                remedy="have it served by what heeds the header Range",
            )

    def driver_for(self, key: str) -> tuple[Any, str]:
        """The driver for a URL (fsspec's `AbstractFileSystem`), and what it calls the place.

        Raises:
            Unreachable: fsspec knows no such scheme, or its driver can't be opened.
            NotInstalled: fsspec lacks a package for it.
        """
        scheme, separator, rest = key.partition("://")
        if not separator or "::" in key:
            # fsspec would take it for several file systems, one through the other.
            raise Unreachable(key, expected="a path or a URL of one file system", found="another form")
        authority, _, path = rest.partition("/")
        driver = self._opened(scheme, authority)
        if _ODD.search(path) is not None and not _opens_exactly(driver, key, path):
            remedy = "have PyIceberg open files its own way: `Resolved.table` and `read` with `properties`"
            raise Unreachable(
                key, expected="a name that fsspec's driver takes as it is", found="one that it changes", remedy=remedy
            )
        return driver, key

    def _open(self, scheme: str, authority: str) -> Any:  # noqa: ANN401 - fsspec has no types
        where, options = f"{scheme}://{authority}", self._options if scheme == self._scheme else {}
        try:
            driver = fsspec.get_filesystem_class(scheme)
        except ValueError as error:
            found = f"{scheme}, which fsspec has no driver for"
            raise Unreachable(where, expected="a scheme that fsspec can open", found=found) from error
        except ImportError as error:
            raise _not_installed_error(where, error) from error
        return _open_driver(where, driver, options)


def _opens_exactly(driver: Any, key: str, path: str) -> bool:  # noqa: ANN401 - fsspec has no types
    """Whether a driver opens the very file of a name, and not a part of the name or a version of another file."""
    return _VERSION.search(path) is None and str(driver._strip_protocol(key)).endswith(path)  # noqa: SLF001 - what its verbs call


def _open_driver(where: str, driver: Any, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - fsspec has no types
    try:
        # What a URL itself says of its store, such as the account in an Azure host name.
        message = driver._get_kwargs_from_urls(f"{where}/")  # noqa: SLF001 - what fsspec's own open calls
        return driver(**{**message, **options})
    except ImportError as error:
        raise _not_installed_error(where, error) from error
    except Exception as error:
        raise _to_reader_error(where, error) from error


def _paths_of_kind(found: Iterable[Mapping[str, Any]], kind: str) -> Iterator[str]:
    """The paths of what is of one kind."""
    return (entry["name"] for entry in found if entry["type"] == kind)


def _names(paths: Iterable[str], limit: int) -> list[str]:
    return sorted({path.rstrip("/").rpartition("/")[2] for path in paths})[:limit]


def _call_driver(key: str, ask: Callable[[], T], beyond: T | None = None) -> T | None:
    try:
        return ask()
    except _MISSING:
        return None
    except Exception as error:
        # Drivers let through whatever their libraries raise.
        code = _status(error)
        if code in {_ABSENT, _BEYOND}:
            return beyond if code == _BEYOND else None
        raise _to_reader_error(key, error) from error


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error of some library is about, or what it was raised from."""
    return next((code for code in _error_details(error) if isinstance(code, int)), None)


def _error_details(error: BaseException | None) -> Iterator[object]:
    seen: set[int] = set()
    # `raise error from error`, as of a translation that knows no better, makes it its own cause.
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for name in ("status", "status_code", "code"):
            yield getattr(error, name, None)
        # Of botocore, which s3fs translates: most of its own errors say less than that.
        response = getattr(error, "response", None)
        if isinstance(response, Mapping):
            yield response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        error = error.__cause__


def _is_forbidden(error: Exception) -> bool:
    is_gcsfs = isinstance(error, OSError) and str(error).startswith(_FORBIDDEN_BY_GCSFS)
    return is_gcsfs or isinstance(error, PermissionError) or _status(error) in _FORBIDDEN


def _to_reader_error(where: str, error: Exception) -> Unreadable:
    found = f"{type(error).__name__}: {error}"[:500]
    if _is_forbidden(error):
        remedy = "give the reader's identity the right to read and to list there; credentials go into storage_options"
        return NotPermitted(where, expected="the permission to read it", found=found, remedy=remedy)
    return Unreachable(
        where, expected="a store that answers", found=found, remedy="see storage_options, and the network"
    )


def _not_installed_error(where: str, error: ImportError) -> NotInstalled:
    package = {"s3": "s3fs", "gs": "gcsfs", "abfss": "adlfs"}.get(scheme_of(where), "")
    remedy = f"pip install {package}" if package else "install the package that fsspec names"
    return NotInstalled(where, expected="fsspec's driver for it", found=str(error), remedy=remedy)
