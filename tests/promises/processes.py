"""What other processes do to files, and refusals, deaths and hangs that the kernel deals out at one step.

The kernel does so by seccomp filters of a thread (seccomp(2)).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import resource
import signal
import struct
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from fcntl import ioctl
from functools import partial
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import anyio

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, ExternalError
from sfn.storage.atomic_files import TEMPORARY_NAME, LockableFolder, PendingFsyncs
from sfn.storage.local import BlockingLocalStore, LockBusy

NOBODY = 65534
"""The number of a user who owns nothing, where the tests run as root."""

T = TypeVar("T")

_LIBC = ctypes.CDLL(None, use_errno=True)
_MACHINES = {
    "x86_64": (
        0xC000003E,
        {
            "write": 1, "flock": 73, "fsync": 74, "openat": 257, "mkdirat": 258, "unlinkat": 263, "renameat": 264,
            "linkat": 265, "mkdir": 83, "getdents64": 217, "pwrite64": 18, "fdatasync": 75, "clone3": 435,
            "seccomp": 317, "openat2": 437,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "write": 64, "flock": 32, "fsync": 82, "openat": 56, "mkdirat": 34, "unlinkat": 35, "renameat": 38,
            "linkat": 37, "mkdir": 34, "getdents64": 61, "pwrite64": 68, "fdatasync": 83, "clone3": 435,
            "seccomp": 277, "openat2": 437,
        },
    ),
}  # fmt: skip
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS, _NOTIFY = 0x7FFF0000, 0x00050000, 0x80000000, 0x7FC00000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


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


@dataclass(frozen=True, slots=True)
class Step:
    """A system call that a file operation makes.

    Attributes:
        call: its name.
        argument: position and value of an argument that tells it from others of that name.
        of_folder: the first argument is the descriptor of the folder, the first file to be opened from now on.
    """

    call: str
    argument: tuple[int, int] | None = None
    of_folder: bool = False


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def kill_at(step: Step) -> None:
    """From now on this process dies, unprepared, instead of making the call."""
    _filter(step, _KILL_PROCESS)


def refuse(step: Step, number: int) -> None:
    """From now on the kernel answers this thread's step with that error, without doing it."""
    if step.call == "openat":
        # As on a kernel that does not know it: each path is then opened by the older call.
        _filter(Step("openat2"), _ERRNO | errno.ENOSYS)
    _filter(step, _ERRNO | number)


def refused(step: Step, number: int, call: Callable[[], T]) -> T:
    """The result of a call in whose thread the kernel answers the step with that error, without doing it."""

    def run() -> T:
        refuse(step, number)
        return call()

    return _in_a_thread(run)


class Hang:
    """A step that hangs wherever it is made: in this thread, and in those that it starts from now on."""

    def __init__(self, step: Step) -> None:
        self._listener = _filter(step, _NOTIFY)

    def let_go(self) -> None:
        """Carry out the call that has hung for longest, or the next one."""
        notice = bytearray(80)
        ioctl(self._listener, 0xC0502100, notice)  # SECCOMP_IOCTL_NOTIF_RECV
        (number,) = struct.unpack_from("Q", notice)
        ioctl(self._listener, 0xC0182101, struct.pack("QqiI", number, 0, 0, 1))  # SECCOMP_IOCTL_NOTIF_SEND

    def end(self) -> None:
        """All that hang, and all that come, are refused."""
        os.close(self._listener)


def hanging(step: Step, act: Callable[[Hang], Coroutine[Any, Any, T]]) -> T:
    """The result of a coroutine in whose thread, and in those that it starts, the step hangs; in the end it fails."""

    def run() -> T:
        hang = Hang(step)
        try:
            return anyio.run(act, hang)
        finally:
            hang.end()

    return _in_a_thread(run)


def _in_a_thread(call: Callable[[], T]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again, in the thread that wants it
            errors.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _filter(step: Step, verdict: int) -> int:
    """From now on the kernel deals out the verdict: the descriptor on which it tells of a `_NOTIFY`."""
    architecture, numbers = _MACHINES[platform.machine()]
    argument = (0, _next_descriptor()) if step.of_folder else step.argument
    tests = [(_ARCHITECTURE, architecture), (_NUMBER, numbers[step.call])]
    if argument is not None:
        tests.append((_ARGUMENTS + 8 * argument[0], argument[1]))
    lines: list[tuple[int, int, int, int]] = []
    for index, (offset, value) in enumerate(tests):
        to_allow = 2 * (len(tests) - index) - 1
        lines += [(_LOAD, 0, 0, offset), (_JUMP_IF_EQUAL, 0, to_allow, value)]
    lines += [(_RETURN, 0, 0, verdict), (_RETURN, 0, 0, _ALLOW)]
    program = _Program(len(lines), (_Instruction * len(lines))(*[_Instruction(*line) for line in lines]))
    _control(_LIBC.prctl, 38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    flags = 8 if verdict == _NOTIFY else 0  # SECCOMP_FILTER_FLAG_NEW_LISTENER
    # SECCOMP_SET_MODE_FILTER
    return _control(partial(_LIBC.syscall, ctypes.c_long(numbers["seccomp"])), 1, flags, ctypes.addressof(program))


def _control(call: Callable[..., int], *values: int) -> int:
    answer = call(*(ctypes.c_ulong(value) for value in values))
    if answer < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return answer


def _next_descriptor() -> int:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor
