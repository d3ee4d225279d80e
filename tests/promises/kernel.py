"""Refusals and deaths that the kernel itself deals out at one step: seccomp filters of this thread (seccomp(2))."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

_LIBC = ctypes.CDLL(None, use_errno=True)
_MACHINES = {
    "x86_64": (
        0xC000003E,
        {
            "write": 1, "flock": 73, "fsync": 74, "openat": 257, "mkdirat": 258, "unlinkat": 263, "renameat": 264,
            "linkat": 265, "mkdir": 83, "getdents64": 217, "pwrite64": 18, "fdatasync": 75,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "write": 64, "flock": 32, "fsync": 82, "openat": 56, "mkdirat": 34, "unlinkat": 35, "renameat": 38,
            "linkat": 37, "mkdir": 34, "getdents64": 61, "pwrite64": 68, "fdatasync": 83,
        },
    ),
}  # fmt: skip
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
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
    _filter(step, _ERRNO | number)


def refused(step: Step, number: int, call: Callable[[], T]) -> T:
    """The result of a call in whose thread the kernel answers the step with that error, without doing it."""
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        refuse(step, number)
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - it is raised again, in the thread that wants it
            errors.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _filter(step: Step, verdict: int) -> None:
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
    _control(38, 1, 0)  # PR_SET_NO_NEW_PRIVS
    _control(22, 2, ctypes.addressof(program))  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def _control(option: int, first: int, second: int) -> None:
    if _LIBC.prctl(option, *(ctypes.c_ulong(value) for value in (first, second, 0, 0))) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _next_descriptor() -> int:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor
