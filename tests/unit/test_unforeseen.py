"""What an exception that no adapter foresaw means: a shortage of this process, what may pass, or a defect."""

from __future__ import annotations

import errno
import socket

import pytest

from sfn.work.unforeseen import Unforeseen, kind_of

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
    assert kind_of(error) is Unforeseen.SHORTAGE
    assert kind_of(caused(ImportError("no module"), error)) is Unforeseen.SHORTAGE
    assert kind_of(met(KeyError("x"), error)) is Unforeseen.SHORTAGE
    assert kind_of(ExceptionGroup("two", [ValueError("x"), error])) is Unforeseen.SHORTAGE


@pytest.mark.parametrize("number", OTHERS, ids=errno.errorcode.get)
def test_every_other_error_of_the_system_may_pass(number: int) -> None:
    assert kind_of(OSError(number, "no")) is Unforeseen.PASSING
    assert kind_of(caused(ValueError("x"), OSError(number, "no"))) is Unforeseen.PASSING


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), Unforeseen.SHORTAGE),
        (RuntimeError("can't start new thread"), Unforeseen.SHORTAGE),
        (caused(ValueError("x"), MemoryError()), Unforeseen.SHORTAGE),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), Unforeseen.PASSING),
        (TimeoutError(), Unforeseen.PASSING),
        (ConnectionResetError(), Unforeseen.PASSING),
        (InterruptedError(), Unforeseen.PASSING),
        (OSError("without a number"), Unforeseen.PASSING),
        (RuntimeError("another one"), Unforeseen.DEFECT),
        (RuntimeError(), Unforeseen.DEFECT),
        (KeyError("x"), Unforeseen.DEFECT),
        (ImportError("no module"), Unforeseen.DEFECT),
        (met(KeyError("x"), FileNotFoundError()), Unforeseen.DEFECT),
        (met(KeyError("x"), OSError(errno.EMFILE, "short"), suppressed=True), Unforeseen.DEFECT),
        (circle(), Unforeseen.DEFECT),
    ],
)
def test_each_exception_has_one_meaning(error: Exception, kind: Unforeseen) -> None:
    assert kind_of(error) is kind


def test_an_endless_chain_ends() -> None:
    error: Exception = ValueError(0)
    for number in range(1000):
        error = caused(ValueError(number), error)
    assert kind_of(error) is Unforeseen.DEFECT
