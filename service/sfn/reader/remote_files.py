"""Access to files through fsspec, for any file system or store that it has a driver for."""

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

_IGNORES_RANGE: Final = {"http", "https"}
"""Schemes with servers that may return the whole file for a range, without an error of the driver."""
_S3: Final = {"s3", "s3a", "s3n"}
_ODD: Final = re.compile("[#?]|//")
_VERSION: Final = re.compile(r"\?version[iI]d=")
"""A suffix that s3fs and adlfs cut off a name."""
_MISSING: Final = (FileNotFoundError, NotADirectoryError)
_FORBIDDEN: Final = {401, 403}
_FORBIDDEN_BY_GCSFS: Final = "Forbidden: "
"""The beginning of gcsfs' message for a missing permission: an OSError without number, status or cause."""
_ABSENT: Final = 404
_BEYOND: Final = 416
"""The status for a range that begins at or after the end of a file."""


class FsspecFileSystem:
    """The `FileSystem` of fsspec's drivers, through their blocking interface: `run_synchronously` can run its callers.

    Timeouts and retries are the drivers' own, set by the options. The drivers list a folder as a whole, even if few
    names are requested, because fsspec has no paging.

    Args:
        scheme: the URL scheme that the options are for; other schemes are opened without options.
        options: the driver's options (fsspec's `storage_options`).
    """

    def __init__(self, scheme: str, options: Mapping[str, Any]) -> None:
        self._scheme, self._options = scheme, dict(options)
        self._opened = lru_cache(64)(self._open)

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        driver, path = self.driver_for(key)
        body = _call_driver(key, lambda: bytes(driver.cat_file(path, start=start, end=start + most)), beyond=b"")
        if body and start:
            await self._check_part(key, len(body), most, start)
        # If the range starts at 0, a server that returns the whole file does no harm.
        return body if body is None else body[:most]

    async def list(self, prefix: str, limit: int) -> list[str]:
        driver, path = self.driver_for(prefix)

        def list_names() -> list[str]:
            # A driver may cache its listing, which would hide a table that was renamed since.
            driver.invalidate_cache(path)
            return _names(driver.ls(path, detail=False), limit)

        return [prefix + name for name in _call_driver(prefix, list_names) or []]

    async def entries(self, prefix: str) -> FolderEntries:
        """Return the entries directly below a prefix that ends in `/`; none if there is no such folder.

        Raises:
            NotPermitted, NotInstalled, Unreachable: the folder can't be listed.
        """
        driver, path = self.driver_for(prefix)

        def list_entries() -> FolderEntries:
            driver.invalidate_cache(path)
            found = driver.ls(path, detail=True)
            return FolderEntries(
                *(tuple(_names(_paths_of_kind(found, kind), len(found))) for kind in ("file", "directory"))
            )

        return _call_driver(prefix, list_entries) or FolderEntries()

    async def size(self, key: str) -> int | None:
        driver, path = self.driver_for(key)
        found = _call_driver(key, lambda: driver.info(path))
        return None if found is None or found["type"] != "file" else int(found["size"] or 0)

    async def is_folder(self, url: str) -> bool:
        driver, path = self.driver_for(url)
        return bool(_call_driver(url, lambda: driver.isdir(path)))

    async def _check_part(self, key: str, found: int, most: int, start: int) -> None:
        """Check that the driver returned a range, and not the whole file, which is longer than any range after 0."""
        is_part = found <= most
        if is_part and scheme_of(key) in _IGNORES_RANGE:
            is_part = found == min(most, (await self.size(key) or 0) - start)
        if not is_part:
            raise Unreachable(
                key,
                expected=f"at most {most:,} bytes from {start:,} on",
                found=f"{found:,} bytes, which may be the whole file",
                remedy="use a server that supports the header Range",
            )

    def driver_for(self, key: str) -> tuple[Any, str]:
        """Return the driver for a URL (fsspec's `AbstractFileSystem`), and the driver's path for it.

        Raises:
            Unreachable: fsspec knows no such scheme, or its driver can't be opened.
            NotInstalled: fsspec lacks a package for it.
        """
        scheme, separator, rest = key.partition("://")
        if not separator or "::" in key:
            # fsspec would take the URL for a chain of file systems.
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
    """Return whether a driver opens exactly the named file, and not a shorter name or a version of another file."""
    opened = str(driver._strip_protocol(key))  # noqa: SLF001 - its methods call it
    return _VERSION.search(path) is None and opened.endswith(path)


def _open_driver(where: str, driver: Any, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - fsspec has no types
    try:
        # The URL itself may contain options, such as the account in an Azure host name.
        from_url = driver._get_kwargs_from_urls(f"{where}/")  # noqa: SLF001 - what fsspec's own open calls
        return driver(**{**from_url, **options})
    except ImportError as error:
        raise _not_installed_error(where, error) from error
    except Exception as error:
        raise _to_reader_error(where, error) from error


def _paths_of_kind(found: Iterable[Mapping[str, Any]], kind: str) -> Iterator[str]:
    """Return the paths of the entries of one kind."""
    return (entry["name"] for entry in found if entry["type"] == kind)


def _names(paths: Iterable[str], limit: int) -> list[str]:
    return sorted({path.rstrip("/").rpartition("/")[2] for path in paths})[:limit]


def _call_driver(key: str, call: Callable[[], T], beyond: T | None = None) -> T | None:
    try:
        return call()
    except _MISSING:
        return None
    except Exception as error:
        # Drivers pass on errors of their libraries, of any type.
        code = _status(error)
        if code in {_ABSENT, _BEYOND}:
            return beyond if code == _BEYOND else None
        raise _to_reader_error(key, error) from error


def _status(error: BaseException) -> int | None:
    """Return the HTTP status in an error of some library, or in its causes."""
    return next((code for code in _error_details(error) if isinstance(code, int)), None)


def _error_details(error: BaseException | None) -> Iterator[object]:
    seen: set[int] = set()
    # `raise error from error` makes an error its own cause; some drivers do this.
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for name in ("status", "status_code", "code"):
            yield getattr(error, name, None)
        # botocore's errors, which s3fs translates, have the status here only.
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
        remedy = f"give the reader's identity permission to read and to list there; {_credentials_hint(where)}"
        return NotPermitted(where, expected="the permission to read it", found=found, remedy=remedy)
    remedy = f"check the network; {_credentials_hint(where)}"
    return Unreachable(where, expected="a store that answers", found=found, remedy=remedy)


def _credentials_hint(where: str) -> str:
    """Return how a reader, which knows no settings of the service, gets a store's credentials and address."""
    hint = "credentials go into storage_options (--storage-option KEY=VALUE)"
    if scheme_of(where) in _S3:
        return f"{hint}, and so does endpoint_url for a store other than Amazon's; or set AWS_ENDPOINT_URL_S3"
    return hint


def _not_installed_error(where: str, error: ImportError) -> NotInstalled:
    package = {"s3": "s3fs", "gs": "gcsfs", "abfss": "adlfs"}.get(scheme_of(where), "")
    remedy = f"pip install {package}" if package else "install the package that fsspec names"
    return NotInstalled(where, expected="fsspec's driver for it", found=str(error), remedy=remedy)
