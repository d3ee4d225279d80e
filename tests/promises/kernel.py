"""Refusals, deaths and hangs that the kernel itself deals out at one step: seccomp filters of a thread (seccomp(2))."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from fcntl import ioctl
from functools import partial
from threading import Thread
from typing import Any, TypeVar

import anyio

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
