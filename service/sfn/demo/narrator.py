"""Tells what happens, with times, and insists that it is what should be."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from sfn.errors import SfnError, Unreadable

T = TypeVar("T")

_PATIENCE = 20.0
_PAUSE = 0.01


@dataclass(slots=True)
class Narrator:
    """One telling.

    Attributes:
        say: prints a line.
    """

    say: Callable[[str], None]
    _began: float = field(default_factory=time.monotonic)
    _steps: int = 0

    def step(self, what: str) -> None:
        """A new step begins."""
        self._steps += 1
        self.say("")
        self._line(f"{self._steps}. {what}")

    def note(self, what: str) -> None:
        """Something to know within a step."""
        self._line(f"   {what}")

    def show(self, *lines: str) -> None:
        """What there is to see, without times."""
        for line in lines:
            self.say(f"{'':16}{line}")

    def check(self, what: str, *, expected: object, found: object) -> None:
        """A result that must be the expected one.

        Raises:
            SfnError: it is another.
        """
        if found != expected:
            raise SfnError(f"step {self._steps}, {what}", expected=str(expected), found=str(found))
        self.note(f"✓ {what}")

    def wait_for(self, what: str, probe: Callable[[], T], expected: T) -> float:
        """Wait until a look finds the expected; after how many seconds it did. What a reader refuses is waited out.

        Raises:
            SfnError: it takes too long.
        """
        began = time.monotonic()
        found: T | Unreadable | None = None
        while time.monotonic() - began < _PATIENCE:
            try:
                found = probe()
            except Unreadable as refusal:
                found = refusal
            if found == expected:
                return time.monotonic() - began
            time.sleep(_PAUSE)
        raise SfnError(f"step {self._steps}, {what}", expected=f"{expected} in {_PATIENCE:g} s", found=str(found))

    def _line(self, text: str) -> None:
        self.say(f"{time.monotonic() - self._began:6.1f} s  {text}")
