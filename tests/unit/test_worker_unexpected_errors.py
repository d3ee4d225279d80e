"""What an exception that no adapter foresaw means: a shortage of this process, what may pass, or a defect."""

from __future__ import annotations

import errno
import socket

import pytest

from sfn.worker.worker import UnexpectedErrorKind, classify_error

SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS, errno.EUSERS, errno.ENOLCK]
OTHERS = sorted(set(errno.errorcode) - set(SHORTAGES) - {errno.EWOULDBLOCK})


def caused(error: Exception, cause: Exception) -> Exception:
    """An error that was raised from another one."""
    error.__cause__ = cause
    return error


def met(error: Exception, context: Exception, *, suppressed: bool = False) -> Exception:
    """An error that was raised while another one was handled."""
    error.__context__, error.__suppress_context__ = context, suppressed
    return error


def circle() -> Exception:
    """Two errors that caused each other."""
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__ = other, one
    return one


@pytest.mark.parametrize("number", SHORTAGES, ids=errno.errorcode.get)
def test_too_few_resources_are_a_shortage_wherever_a_library_hides_them(number: int) -> None:
    error = OSError(number, "short")
    assert classify_error(error) is UnexpectedErrorKind.SHORTAGE
    assert classify_error(caused(ImportError("no module"), error)) is UnexpectedErrorKind.SHORTAGE
    assert classify_error(met(KeyError("x"), error)) is UnexpectedErrorKind.SHORTAGE
    assert classify_error(ExceptionGroup("two", [ValueError("x"), error])) is UnexpectedErrorKind.SHORTAGE


@pytest.mark.parametrize("number", OTHERS, ids=errno.errorcode.get)
def test_every_other_error_of_the_system_may_pass(number: int) -> None:
    assert classify_error(OSError(number, "no")) is UnexpectedErrorKind.TRANSIENT
    assert classify_error(caused(ValueError("x"), OSError(number, "no"))) is UnexpectedErrorKind.TRANSIENT


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), UnexpectedErrorKind.SHORTAGE),
        (RuntimeError("can't start new thread"), UnexpectedErrorKind.SHORTAGE),
        (caused(ValueError("x"), MemoryError()), UnexpectedErrorKind.SHORTAGE),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), UnexpectedErrorKind.TRANSIENT),
        (TimeoutError(), UnexpectedErrorKind.TRANSIENT),
        (ConnectionResetError(), UnexpectedErrorKind.TRANSIENT),
        (InterruptedError(), UnexpectedErrorKind.TRANSIENT),
        (OSError("without a number"), UnexpectedErrorKind.TRANSIENT),
        (RuntimeError("another one"), UnexpectedErrorKind.DEFECT),
        (RuntimeError(), UnexpectedErrorKind.DEFECT),
        (KeyError("x"), UnexpectedErrorKind.DEFECT),
        (ImportError("no module"), UnexpectedErrorKind.DEFECT),
        (met(KeyError("x"), FileNotFoundError()), UnexpectedErrorKind.DEFECT),
        (met(KeyError("x"), OSError(errno.EMFILE, "short"), suppressed=True), UnexpectedErrorKind.DEFECT),
        (circle(), UnexpectedErrorKind.DEFECT),
    ],
)
def test_each_exception_has_one_meaning(error: Exception, kind: UnexpectedErrorKind) -> None:
    assert classify_error(error) is kind


def test_an_endless_chain_ends() -> None:
    error: Exception = ValueError(0)
    for number in range(1000):
        error = caused(ValueError(number), error)
    assert classify_error(error) is UnexpectedErrorKind.DEFECT
