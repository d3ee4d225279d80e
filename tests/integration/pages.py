"""Pages of this project that show what was measured, between two marks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_END = "<!-- end of what was measured -->\n"


@dataclass(frozen=True, slots=True)
class Shown:
    """What one page shows of a measurement.

    Attributes:
        page: below the project's root.
        module: measures, and writes it down: it stands in the mark.
        text: what is between the marks.
    """

    page: str
    module: str
    text: str

    @property
    def path(self) -> Path:
        """The page's file."""
        return ROOT / self.page

    def brought_up_to_date(self) -> str:
        """The page with the text between its marks.

        Raises:
            ValueError: it has no such marks.
        """
        mark = f"<!-- measured: written by python -m {self.module} -->\n"
        before, begin, rest = self.path.read_text().partition(mark)
        _, end, after = rest.partition(_END)
        if not begin or not end:
            raise ValueError(f"{self.page} with the lines {mark!r} and {_END!r}")
        return f"{before}{mark}{self.text}{_END}{after}"

    def write(self) -> None:
        """Bring the page up to date."""
        self.path.write_text(self.brought_up_to_date())
