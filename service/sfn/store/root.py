"""The configured folder of a local store: whether what is refused below it is a table's trouble or the store's."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Final

from sfn.errors import Scope, Transient, Trouble
from sfn.store.denials import DENIED_BY, Denials
from sfn.store.refusal import found, refusals, trouble

SETTLED: Final = 5.0
"""As of `Denials`: a change of modes or of a mount holds at once, but a `chmod -R` takes a while."""

_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_OF_ITS_PLACE: Final = _FORBIDDEN | {
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


class Root:
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
        self, location: str, done: Callable[[str, str], None], seconds: Callable[[], float] = monotonic
    ) -> None:
        self.location = location
        self._done, self._denials = done, Denials(seconds, SETTLED)
        self._path = Path(location.removeprefix("file://") or "/")
        self._is_whole_machine = self._path == Path("/")

    @contextmanager
    def refusals(self, where: str, verb: str) -> Iterator[None]:
        """Turn every `OSError` of the block into a trouble: of that file or folder, or of the whole store.

        Args:
            where: the file or folder.
            verb: as of `Denials`.

        Raises:
            Trouble: as of `sfn.store.refusal`; of the scope that `Denials` finds, where it depends on the place.
            Transient: scope store, where the block was forbidden something and the root is forbidden too.
        """
        with refusals(where):
            try:
                yield
            except PermissionError as error:
                self._check_permitted(where, error)
                raise self._judged(where, verb, error) from error
            except OSError as error:
                if error.errno in _OF_ITS_PLACE:
                    raise self._judged(where, verb, error) from error
                raise

    def permitted(self, verb: str, key: str) -> None:
        """As of `Denials`: the file system has carried out a verb."""
        self._denials.permitted(verb, key)

    def _judged(self, where: str, verb: str, error: OSError) -> Trouble:
        """The trouble, of the table or of the store."""
        witnesses = self._denials.denied(verb, where)
        reach = self._denials.reach(verb, where, elsewhere=self._is_done_at(witnesses, verb))
        denied, scope = DENIED_BY[reach]
        kind = denied if error.errno in _FORBIDDEN else Transient
        said = trouble(where, error)
        return kind(where, scope=scope, expected=said.expected, found=said.found, remedy=said.remedy)

    def _is_done_at(self, witnesses: list[str], verb: str) -> bool | None:
        answer = None
        for witness in witnesses:
            try:
                self._done(verb, witness)
            except OSError as error:
                if error.errno in _OF_ITS_PLACE:
                    answer = False
            except Trouble:
                # Another writer is at work there, or the file system lacks something: no answer.
                continue
            else:
                return True
        return answer

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
