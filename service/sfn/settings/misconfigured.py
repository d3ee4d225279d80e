"""The error of settings that are wrong."""

from __future__ import annotations

from collections.abc import Iterable

from sfn.errors import SfnError


class ConfigurationError(SfnError):
    """The settings can't be used.

    Args:
        problems: everything that is wrong with them; no secret is repeated in it.
    """

    def __init__(self, problems: Iterable[SfnError]) -> None:
        self.problems = tuple(problems)
        found = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__("settings", expected="none of these problems", found=found)
