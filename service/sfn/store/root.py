"""The configured folder of a local store: whether what is refused below it is a table's trouble or the store's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sfn.errors import Scope, Transient
from sfn.store.refusal import found, refusals


class Root:
    """The folder that all keys of a store lie below. For several threads.

    It is never made: where it is missing, its file system is not mounted, and what should lie there is not absent but
    out of reach. Where the system forbids to read or search it (credentials of a mount that have expired, the mode of a
    whole mount), what it forbids below is no table's fault. Nothing is asked of the right to write in it: tables'
    folders may be somebody else's to make.

    Args:
        location: canonical. `file://`, the whole machine, is no folder of the store's, and tells nothing.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self._path = Path(location.removeprefix("file://") or "/")
        self._is_whole_machine = self._path == Path("/")

    @contextmanager
    def refusals(self, where: str) -> Iterator[None]:
        """Turn every `OSError` of the block into a trouble: of that file or folder, or of the whole store.

        Args:
            where: the file or folder.

        Raises:
            Trouble: as of `sfn.store.refusal`.
            Transient: scope store, where the block was forbidden something and the root is forbidden too.
        """
        with refusals(where):
            try:
                yield
            except PermissionError as error:
                self._check_permitted(where, error)
                raise

    def check(self) -> None:
        """Look whether the root is there.

        Raises:
            Transient: scope store, where it is missing.
            OSError: nobody can tell.
        """
        try:
            self._path.stat()
        except FileNotFoundError as error:
            raise Transient(
                self.location,
                scope=Scope.STORE,
                expected="the folder of the store",
                found="nothing",
                remedy="mount its file system, or correct `[stores.NAME] prefix`",
            ) from error

    def _check_permitted(self, where: str, refusal: PermissionError) -> None:
        """Look whether the root is forbidden as well.

        Raises:
            Transient: scope store; it is.
            OSError: nobody can tell; what the system says of the root then counts for what lies below.
        """
        if self._is_whole_machine:
            return
        try:
            self.check()
            # Opened, not asked about alone: a network file system may answer the question from its memory.
            os.close(os.open(self._path, os.O_RDONLY | os.O_DIRECTORY))
        except PermissionError as error:
            raise self._forbidden("read", where, error) from error
        if not os.access(self._path, os.X_OK, effective_ids=True):
            raise self._forbidden("search", where, refusal)

    def _forbidden(self, what: str, where: str, error: OSError) -> Transient:
        return Transient(
            self.location,
            scope=Scope.STORE,
            expected=f"a folder of the store that the service's user may {what}",
            found=f"{found(error)} for the user {os.geteuid()}, met at {where}",
            remedy="renew the credentials of its mount, or let that user read and search the folder",
        )
