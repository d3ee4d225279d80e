"""The configured folder of a local store: whether what is refused below it is a table's trouble or the store's."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Final

from sfn.errors import ErrorScope, ExternalError, Transient
from sfn.store.denials import ERROR_BY_REACH, PermissionTracker
from sfn.store.refusal import describe_os_error, error_of, map_os_errors

PROPAGATION_SECONDS: Final = 5.0
"""As of `PermissionTracker`: a change of modes or of a mount holds at once, but a `chmod -R` takes a while."""

_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_PER_FOLDER: Final = _FORBIDDEN | {
    errno.EDQUOT,
    errno.EHOSTDOWN,
    errno.EIO,
    errno.ENODEV,
    errno.ENOSPC,
    errno.ENOTCONN,
    errno.EREMOTEIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
"""What a file system may say of one folder (a mode, a mount, a project's quota, a bad sector) and of everything."""


class StoreRoot:
    """The folder that all keys of a store lie below. For several threads.

    It is never made: where it is missing, its file system is not mounted, and what should lie there is not absent but
    out of reach. Where the system forbids to read or search it (credentials of a mount that have expired, the mode of a
    whole mount), what it forbids below is no table's fault. Nothing is asked of the right to write in it: tables'
    folders may be somebody else's to make.

    What is refused below a root in order is the store's trouble until the same is done elsewhere in the store: a file
    system may be mounted read-only.

    Args:
        location: canonical. `file://`, the whole machine, is no folder of the store's, and tells nothing.
        done: does a verb once more, at a key where it was done before, and changes nothing.
        seconds: a clock that only goes forward.
    """

    def __init__(
        self, location: str, repeat: Callable[[str, str], None], seconds: Callable[[], float] = monotonic
    ) -> None:
        self.location = location
        self._repeat, self._permissions = repeat, PermissionTracker(seconds, PROPAGATION_SECONDS)
        self._path = Path(location.removeprefix("file://") or "/")
        self._is_whole_machine = self._path == Path("/")

    @contextmanager
    def map_os_errors(self, where: str, verb: str) -> Iterator[None]:
        """Turn every `OSError` of the block into a trouble: of that file or folder, or of the whole store.

        Args:
            where: the file or folder.
            verb: as of `PermissionTracker`.

        Raises:
            Trouble: as of `sfn.store.refusal`; of the scope that `PermissionTracker` finds, where it depends on the
                place.
            Transient: scope store, where the block was forbidden something and the root is forbidden too.
        """
        with map_os_errors(where):
            try:
                yield
            except PermissionError as error:
                self._check_permitted(where, error)
                raise self._error(where, verb, error) from error
            except OSError as error:
                if error.errno in _PER_FOLDER:
                    raise self._error(where, verb, error) from error
                raise

    def note_permitted(self, verb: str, key: str) -> None:
        """As of `PermissionTracker`: the file system has carried out a verb."""
        self._permissions.note_permitted(verb, key)

    def _error(self, where: str, verb: str, error: OSError) -> ExternalError:
        """The trouble, of the table or of the store."""
        witnesses = self._permissions.note_denied(verb, where)
        reach = self._permissions.judge(verb, where, elsewhere=self._is_permitted_at(witnesses, verb))
        denied, scope = ERROR_BY_REACH[reach]
        kind = denied if error.errno in _FORBIDDEN else Transient
        as_table_error = error_of(where, error)
        return kind(
            where,
            scope=scope,
            expected=as_table_error.expected,
            found=as_table_error.found,
            remedy=as_table_error.remedy,
        )

    def _is_permitted_at(self, witnesses: list[str], verb: str) -> bool | None:
        answer = None
        for witness in witnesses:
            try:
                self._repeat(verb, witness)
            except OSError as error:
                if error.errno in _PER_FOLDER:
                    answer = False
            except ExternalError:
                # Another writer is at work there, or the file system lacks something: no answer.
                continue
            else:
                return True
        return answer

    def check_exists(self) -> None:
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
                scope=ErrorScope.STORE,
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
            self.check_exists()
            # Opened, not asked about alone: a network file system may answer the question from its memory.
            os.close(os.open(self._path, os.O_RDONLY | os.O_DIRECTORY))
        except PermissionError as error:
            raise self._forbidden("read", where, error) from error
        if not os.access(self._path, os.X_OK, effective_ids=True):
            raise self._forbidden("search", where, refusal)

    def _forbidden(self, what: str, where: str, error: OSError) -> Transient:
        return Transient(
            self.location,
            scope=ErrorScope.STORE,
            expected=f"a folder of the store that the service's user may {what}",
            found=f"{describe_os_error(error)} for the user {os.geteuid()}, met at {where}",
            remedy="renew the credentials of its mount, or let that user read and search the folder",
        )
