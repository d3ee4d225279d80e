"""Whose signature a catalog's certificate must bear."""

from __future__ import annotations

import ssl
from functools import partial
from pathlib import Path

from sfn.catalog.refusal import Refusal, Refused
from sfn.errors import Scope, SfnError
from sfn.watched import Watched

_EXPECTED = "a file of PEM certificates"


class Trust:
    """The system's authorities, or those of a file, which is read again when it changes: new connections ask these.

    Args:
        catalog: its name in the settings.
        file: None for the system's.
    """

    def __init__(self, catalog: str, file: Path | None) -> None:
        self._catalog, self._file = catalog, file
        self._authorities: Watched[ssl.SSLContext] | None = None

    def current(self) -> ssl.SSLContext | bool:
        """What aiohttp takes for it.

        Raises:
            Refused: scope catalog; the file can't be used and never could.
        """
        if self._file is None:
            return True
        try:
            if self._authorities is None:
                what = f"authorities of catalog {self._catalog}"
                self._authorities = Watched(what, (self._file,), partial(_read, self._file))
            return self._authorities.current()
        except SfnError as error:
            found = error.found
        raise Refused(
            Refusal(
                f"catalog {self._catalog}: {self._file}",
                expected=_EXPECTED,
                found=found,
                remedy=f"mend catalogs.{self._catalog}.ca_file",
                permanent=True,
                reach=Scope.CATALOG,
            )
        )


def _read(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        found = (error.reason or "something else").lower().replace("_", " ")
    except OSError as error:
        found = error.strerror or type(error).__name__
    raise SfnError(str(file), expected=_EXPECTED, found=found)
