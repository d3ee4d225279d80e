"""Whose signature a catalog's certificate must bear."""

from __future__ import annotations

import ssl
from pathlib import Path

from sfn.catalog.rest.files import RenewedFile
from sfn.errors import SfnError


class CatalogTrust:
    """The system's authorities, or those of a file, which is read again when it changes: new connections ask these.

    Args:
        catalog: its name in the settings.
        file: None for the system's.
    """

    def __init__(self, catalog: str, file: Path | None) -> None:
        self._authorities = None if file is None else RenewedFile(catalog, "ca_file", file, "authorities", _read)

    async def current(self) -> ssl.SSLContext | bool:
        """What aiohttp takes for it.

        Raises:
            Refused: scope catalog; the file can't be used and never could.
        """
        return True if self._authorities is None else await self._authorities.current()


def _read(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        found = (error.reason or "something else").lower().replace("_", " ")
    except OSError as error:
        found = error.strerror or type(error).__name__
    raise SfnError(str(file), expected="a file of PEM certificates", found=found)
