"""Every chapter of the tour, as a test. All chapters share one listener."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sfn.demo.demo import Narrator
from sfn.demo.environment import RestCatalogServer
from tests.spark.tour.__main__ import CHAPTERS
from tests.spark.tour.stage import Chapter, Place, Stage, place


@pytest.fixture(name="shared", scope="module")
def fixture_shared(
    spark: SparkSession, catalog: RestCatalogServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    with place(spark, catalog, tmp_path_factory.mktemp("tour")) as shared:
        yield shared


@pytest.mark.parametrize("chapter", CHAPTERS, ids=[one.name for one in CHAPTERS])
def test_every_check_of_a_chapter_passes(shared: Place, chapter: Chapter) -> None:
    chapter.run(Stage(shared, Narrator(print)))
