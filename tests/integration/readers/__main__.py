"""`python -m tests.integration.readers`: measure anew what readers show; writes it down for the test and the page."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from sfn.demo.fixture import locate
from tests.integration.readers import rendering
from tests.integration.readers.matrix import EXPECTED, measured


def main() -> None:
    """A process of its own: what readers bring along (threads, handlers of signals, caches) ends with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--java", type=Path, help="else what `make jars` found")
    parser.add_argument("--jars", type=Path, help="else what `make jars` fetched")
    parser.add_argument("--only-into", type=Path, help="a file for what was measured; nothing else is written")
    chosen = parser.parse_args()
    runtime = locate(java=chosen.java, jars=chosen.jars)
    with TemporaryDirectory() as folder:
        found = measured(Path(folder).resolve(), runtime)
    if chosen.only_into is not None:
        chosen.only_into.write_text(found.text())
    else:
        EXPECTED.write_text(found.text())
        for shown in rendering.pages(found):
            shown.write()


if __name__ == "__main__":
    main()
