"""The stores that the promises are tried on, and what another process does to a file."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, ExternalError
from sfn.storage.atomic_files import TEMPORARY_NAME, LockableFolder, PendingFsyncs
from sfn.storage.local import BlockingLocalStore, LockBusy
from tests.promises.kernel import Step, kill_at

NOBODY = 65534
"""The number of a user who owns nothing, where the tests run as root."""


def plant_file(key: str, body: bytes) -> None:
    """Write as somebody does who knows nothing of us."""
    path = Path(key.removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


def names_in(folder: Path) -> list[str]:
    """Everything that lies in a folder, hidden or not."""
    return sorted(path.name for path in folder.iterdir())


def started(target: Callable[..., None], *args: object) -> BaseProcess:
    """Another process that runs a function of this module."""
    process = get_context("spawn").Process(target=target, args=args, daemon=True)
    process.start()
    return process


def told(target: Callable[..., None], *args: object) -> object:
    """What another process that runs a function of this module sends."""
    ours, theirs = Pipe()
    process = started(target, *args, theirs)
    theirs.close()
    with ours:
        answer: object = ours.recv()
    assert ended(process) == 0
    return answer


def ended(process: BaseProcess) -> int:
    """How the process ended: 0, or minus the signal that killed it."""
    process.join(60)
    code = process.exitcode
    assert code is not None, "the process hangs"
    process.close()
    return code


def write_when_free(files: BlockingLocalStore, key: str, body: bytes, replacing: StoredObject | None) -> bool:
    """A write that waits for the lock. Whether the condition held."""
    while isinstance(written := files.write(key, body, replacing), LockBusy):
        time.sleep(0.001)
    return isinstance(written, StoredObject)


def count_up(key: str, turns: int) -> None:
    """Add 1 to the number in a file, so many times, each by compare-and-swap."""
    files = BlockingLocalStore()
    while turns:
        held = files.read(key)
        assert held is not None
        turns -= write_when_free(files, key, b"%d" % (int(held.body) + 1), held)


def count_up_by_the_folders_lock(key: str, turns: int) -> None:
    """As `count_up`, by the protocol of the version before the lock file: an `flock` on the folder itself."""
    path = Path(key.removeprefix("file://"))
    temporary = path.with_name(TEMPORARY_NAME)
    while turns:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.unlink(missing_ok=True)
            with temporary.open("xb") as prepared:
                prepared.write(b"%d" % (int(path.read_bytes()) + 1))
            temporary.rename(path)
            turns -= 1
        except BlockingIOError:
            time.sleep(0.001)
        finally:
            os.close(folder)


def alternate(key: str, bodies: tuple[bytes, ...], turns: int) -> None:
    """Replace a file by each of the bodies in turn; tell nobody."""
    files = BlockingLocalStore()
    for turn in range(turns):
        write_when_free(files, key, bodies[turn % len(bodies)], files.read(key))


def die_writing(key: str, body: bytes, step: Step) -> None:
    """Write, and be killed by the kernel at a step."""
    files = BlockingLocalStore()
    held = files.read(key)
    kill_at(step)
    files.write(key, body, held)


def die_half_written(key: str, body: bytes, size: int) -> None:
    """Write, and be killed by the kernel after so many bytes."""
    files = BlockingLocalStore()
    held = files.read(key)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    files.write(key, body, held)


def write_within(limit: int, value: int, key: str, answer: Connection) -> None:
    """Create a file within a limit of the process, and tell the trouble."""
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (value, before[1]))
    try:
        BlockingLocalStore().write(key, b"x" * 2000, None)
    except ExternalError as trouble:
        resource.setrlimit(limit, before)
        answer.send((type(trouble).__name__, trouble.scope, trouble.found))


def touch_as_nobody(root: str, touches: Sequence[tuple[str, str]], answer: Connection) -> None:
    """Use files below a root as a user who may do what everybody may, and tell the trouble of each time, or None.

    Args:
        root: as of `LocalFileSystem`.
        touches: a verb and its key, one after another.
    """
    if os.geteuid() == 0:
        os.setuid(NOBODY)
    files = BlockingLocalStore(root)
    calls: Mapping[str, Callable[[str], object]] = {
        "read": files.read,
        "list": lambda key: files.list(key, 10),
        "write": lambda key: files.write(key, b"1", None),
        "delete": lambda key: files.delete(key, StoredObject(b"1", "0" * 64)),
    }
    answer.send([_trouble_of(partial(calls[verb], key)) for verb, key in touches])


def die_locked(user: int, umask: int, path: str) -> None:
    """Lock a folder as a user, under a mask of new files' modes, and die at once."""
    os.umask(umask)
    os.setuid(user)
    with LockableFolder(path, "the folder", PendingFsyncs()) as folder:
        if folder.lock():
            os.kill(os.getpid(), signal.SIGKILL)


def write_as(user: int, umask: int, key: str, body: bytes, answer: Connection) -> None:
    """Create a file as a user, under a mask of new files' modes, and tell what came of it."""
    os.umask(umask)
    os.setuid(user)
    try:
        answer.send(BlockingLocalStore().write(key, body, None))
    except ExternalError as trouble:
        answer.send((type(trouble).__name__, trouble.scope, trouble.found))


def _trouble_of(call: Callable[[], object]) -> tuple[str, ErrorScope, str, str] | None:
    try:
        call()
    except ExternalError as trouble:
        return type(trouble).__name__, trouble.scope, trouble.where, trouble.found
    return None
