"""`python -m tests.integration.scenarios`: see anew what readers see; writes it down for the test and the page."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from sfn.demo.fixture import locate
from tests.integration.scenarios import rendering
from tests.integration.scenarios.matrix import EXPECTED, SCENARIOS, measured


def main() -> None:
    """A process of its own: its threads and clients end with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--java", type=Path, help="else what `make jars` found")
    parser.add_argument("--jars", type=Path, help="else what `make jars` fetched")
    parser.add_argument("--only-into", type=Path, help="a file for what was seen; nothing else is written")
    parser.add_argument("--only", action="append", help="the key of a scenario: what is seen in it is printed, no more")
    chosen = parser.parse_args()
    runtime = locate(java=chosen.java, jars=chosen.jars)
    scenarios = [one for one in SCENARIOS if chosen.only is None or one.key in chosen.only]
    with TemporaryDirectory() as folder:
        found = measured(Path(folder).resolve(), runtime, scenarios)
    if chosen.only is not None:
        print(found.text())
    elif chosen.only_into is not None:
        chosen.only_into.write_text(found.text())
    else:
        EXPECTED.write_text(found.text())
        for shown in rendering.pages(found):
            shown.write()


if __name__ == "__main__":
    main()
