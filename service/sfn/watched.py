"""Files that somebody else renews while the process runs: mounted secrets, certificates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final, Generic, NoReturn, TypeAlias, TypeVar

import anyio
import structlog

from sfn.errors import FatalError, SfnError, Transient
from sfn.threads import AbandonableThreads, TimedOut

T = TypeVar("T")

CHECK_INTERVAL: Final = 1.0
"""Seconds from one look at a file to the next."""

FileIdentity: TypeAlias = tuple[int, ...]

_log = structlog.stdlib.get_logger(__name__)


class WatchedFiles(Generic[T]):
    """What was made of some files, made anew when one of them changed, by whoever looks: `watch` for ever.

    Files that can't be read or make no sense leave what was made of the old ones in force. That is logged as an error,
    once for each thing that is wrong, and the new ones are tried at each look until they do.

    Args:
        what: what is made of them, in the plural, for the log.
        files: all that `make` reads.
        make: reads them; raises SfnError for what makes no sense.

    Raises:
        SfnError: they make no sense now, when nothing old is in force.
    """

    interval: ClassVar[float] = CHECK_INTERVAL
    """Seconds from one look to the next."""
    timeout: ClassVar[float] = 10.0
    """Seconds after which a file system that does not answer is told of."""

    def __init__(self, what: str, files: Sequence[Path], make: Callable[[], T]) -> None:
        self._what, self._files, self._make = what, tuple(files), make
        self._logged_error = ""
        self._seen = self._identities()
        self._made = make()

    @property
    def current(self) -> T:
        """What was made last; nothing is looked at."""
        return self._made

    async def watch(self) -> NoReturn:
        """Look at the files again and again, in a thread: a mount that hangs holds up nobody who asks for them."""
        threads = AbandonableThreads(1, self.timeout, read_only=True)
        name = f"read {' and '.join(self._names())}"
        while True:
            await anyio.sleep(self.interval)
            try:
                result = await threads.run(name, lambda _: self.reload_if_changed())
            except Transient as error:
                self.log_reload_failure(str(error))
            else:
                if isinstance(result, TimedOut):
                    self.log_reload_failure(describe_timeout(self.timeout))

    def reload_if_changed(self, *, force: bool = False) -> None:
        """Make it anew if a file changed. Blocks for as long as the file system does.

        Args:
            force: in any case: the clock of some file systems is coarse, and a file of the same size may be another.
        """
        try:
            # Before reading: what changes in between is seen as a change next time.
            seen = self._identities()
            if force or seen != self._seen:
                self._made = self._make()
        except SfnError as error:
            self.log_reload_failure(str(error))
            return
        self._logged_error = ""
        if seen != self._seen:
            self._seen = seen
            _log.info(f"{self._what} read", files=self._names())

    def log_reload_failure(self, error: str) -> None:
        """Log why the old ones stay in force, once as long as it is the same."""
        if error != self._logged_error:
            self._logged_error = error
            _log.error(f"{self._what} kept", files=self._names(), error=error)

    def _identities(self) -> tuple[FileIdentity, ...]:
        return tuple(_identity(file) for file in self._files)

    def _names(self) -> list[str]:
        return [str(file) for file in self._files]


def _identity(file: Path) -> FileIdentity:
    try:
        status = file.stat()
    except OSError as error:
        raise unreadable_file_error(file, error) from error
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def describe_timeout(seconds: float) -> str:
    """What was found of a file system that does not answer."""
    return f"no answer of the file system within {seconds:g} s"


def unreadable_file_error(file: Path, error: OSError) -> FatalError:
    """A file that can't be read."""
    return FatalError(str(file), expected="a file that can be read", found=error.strerror or type(error).__name__)
