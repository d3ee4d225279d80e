"""`python -m tests.dialects`: decode an event of every type; writes what each comes to down, on the page."""

from __future__ import annotations

from tests.dialects.page import page

if __name__ == "__main__":
    page().write()
