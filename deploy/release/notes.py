"""Print the section of a version of CHANGELOG.md, as the text of a release: `notes.py 0.1.0`."""

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"


def section(text: str, version: str) -> str:
    """Return the section of a version without its heading.

    Raises:
        ValueError: there is none with a date.
    """
    found = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    if found is None:
        raise ValueError(f"CHANGELOG.md: expected a section [{version}] with a date, found none")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    try:
        print(section(CHANGELOG.read_text(), sys.argv[1]), end="")
    except ValueError as error:
        sys.exit(str(error))
