"""`python -m tests.spark.matrix`: measure what engines on Spark read, for the test and the page."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

from sfn.demo.environment import RestCatalogServer, find_runtime
from tests.spark.matrix.matrix import EXPECTED, FEATURES, measure, pages
from tests.spark.session import spark_session, spark_settings
from tests.support.pages import write_down


def main() -> None:
    """Measure."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="part of a title: what is measured of it is printed, no more")
    only = parser.parse_args().only
    features = [one for one in FEATURES if only is None or any(part in one.title for part in only)]
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for part in ("catalog", "spark", "matrix"):
            (folder / part).mkdir()
        with (
            RestCatalogServer(folder / "catalog", find_runtime()) as catalog,
            spark_session(folder / "spark", spark_settings(folder / "spark", catalog.uri)) as spark,
        ):
            found = measure(spark, folder / "matrix", features)
    if only is not None:
        print(found.text())
    else:
        write_down(found.text(), EXPECTED, pages(found))


if __name__ == "__main__":
    main()
