"""`python -m tests.integration.readers`: measure anew what readers show; writes it down for the test and the page."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sfn.demo.environment import find_runtime
from tests.integration.readers.matrix import EXPECTED, measured, pages
from tests.support.pages import options, write_down


def main() -> None:
    """Measure."""
    parser = options(__doc__)
    chosen = parser.parse_args()
    runtime = find_runtime(java=chosen.java, jars=chosen.jars)
    with TemporaryDirectory() as folder:
        found = measured(Path(folder).resolve(), runtime)
    if chosen.only_into is not None:
        chosen.only_into.write_text(found.text())
    else:
        write_down(found.text(), EXPECTED, pages(found))


if __name__ == "__main__":
    main()
