"""Write the generated reference pages: `python -m tests.pages`."""

from __future__ import annotations

from tests.pages import pages

if __name__ == "__main__":
    for page in pages():
        page.write()
