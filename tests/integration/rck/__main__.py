"""`python -m tests.integration.rck`: try Iceberg's own server itself; writes the outcomes down for the test."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sfn.demo.environment import RestCatalogServer
from tests.integration.rck.kit import EXPECTED, compatibility_kit, secluded, tried
from tests.support.programs import runtime


def main() -> None:
    """Try it."""
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        found = secluded(folder, runtime())
        for part in ("catalog", "kit"):
            (folder / part).mkdir()
        with RestCatalogServer(folder / "catalog", found) as server:
            run = tried(folder / "kit", found, compatibility_kit(), server.uri)
    EXPECTED.write_text(run.outcomes.text())
    print(f"{run.outcomes.counts()} in {run.seconds:.0f} s")


if __name__ == "__main__":
    main()
