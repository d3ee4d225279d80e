"""The error of settings that are wrong."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sfn.errors import SfnError


class Misconfigured(SfnError):
    """The settings can't be used.

    Args:
        problems: everything that is wrong with them; no secret is repeated in it.
    """

    def __init__(self, problems: Iterable[SfnError]) -> None:
        self.problems = tuple(problems)
        found = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__("settings", expected="none of these problems", found=found)


def forgotten(path: Path | None) -> tuple[SfnError, ...]:
    """What stands before all else that is wrong where no file was given: that it was."""
    if path is not None:
        return ()
    remedy = "name it: --config FILE or SFN_CONFIG; or set each key as SFN_SECTION__KEY"
    return (SfnError("settings", expected="a configuration file", found="none that was given", remedy=remedy),)
