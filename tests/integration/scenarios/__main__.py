"""`python -m tests.integration.scenarios`: see anew what readers see; writes it down for the test and the page."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sfn.demo.environment import find_runtime
from tests.integration.scenarios.matrix import EXPECTED, SCENARIOS, measured, pages
from tests.support.pages import options, write_down


def main() -> None:
    """Measure."""
    parser = options(__doc__)
    parser.add_argument("--only", action="append", help="the key of a scenario: what is seen in it is printed, no more")
    chosen = parser.parse_args()
    runtime = find_runtime(java=chosen.java, jars=chosen.jars)
    scenarios = [one for one in SCENARIOS if chosen.only is None or one.key in chosen.only]
    with TemporaryDirectory() as folder:
        found = measured(Path(folder).resolve(), runtime, scenarios)
    if chosen.only is not None:
        print(found.text())
    elif chosen.only_into is not None:
        chosen.only_into.write_text(found.text())
    else:
        write_down(found.text(), EXPECTED, pages(found))


if __name__ == "__main__":
    main()
