"""`python -m tests.spark.tour [CHAPTER …]`: the life of a table in Spark SQL, told on a terminal."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from sfn.demo.demo import Narrator
from sfn.demo.environment import RestCatalogServer
from sfn.errors import SfnError, suggest_name
from tests.real_catalog import runtime
from tests.spark.running import running, settings
from tests.spark.tour.chapter import Chapter
from tests.spark.tour.chapters import CHAPTERS
from tests.spark.tour.place import Place, place
from tests.spark.tour.stage import Stage

DONE, FAILED = 0, 1
_RULE: Final = "─"
_PREFACE: Final = """\
The life of a table in Spark SQL: Spark, a real REST catalog, and the service before it.
Spark writes through the service's gateway, as the catalog `gated`; `lake` is the catalog itself, and `sfn` the facade,
which asks no catalog and goes by the SFN files beside the tables."""


def main() -> int:
    """Tell the chapters; 1 where something is not as it should be."""
    parser = ArgumentParser(prog="python -m tests.spark.tour", description=__doc__)
    known = {one.name: one for one in CHAPTERS}
    listed = "; ".join(f"{one.name}: {one.title}" for one in CHAPTERS)
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", help=f"which; all without. {listed}")
    wanted: list[str] = parser.parse_args().chapters
    for name in wanted:
        if name not in known:
            parser.error(
                f"expected a chapter, one of {', '.join(known)}; found {name!r}; {suggest_name(name, [*known])}"
            )
    return told([known[name] for name in wanted] or CHAPTERS)


def told(chapters: Sequence[Chapter]) -> int:
    """Tell them, in a temporary folder that is gone afterwards, as are all processes."""
    began = time.monotonic()
    print(_PREFACE)
    try:
        with TemporaryDirectory(prefix="sfn-tour-") as name, ExitStack() as stack:
            shared = _started(Path(name).resolve(), stack)
            print(f"Up in {time.monotonic() - began:.0f} s; all of it lies in {name}.")
            for number, chapter in enumerate(chapters, 1):
                print(f"\n{_RULE * 4} {number} of {len(chapters)}. {chapter.title} ({chapter.name}) {_RULE * 4}")
                if wrong := _trouble(chapter, Stage(shared, Narrator(print))):
                    print(f"\nthe chapter `{chapter.name}`: {wrong}", file=sys.stderr)
                    return FAILED
    # What the tests would be skipped for is told too.
    except (SfnError, pytest.skip.Exception) as error:
        print(f"\nthe start: {error}", file=sys.stderr)
        return FAILED
    print(f"\n✓ Everything was as it should be, in {time.monotonic() - began:.0f} s.")
    print("All processes are gone, and the folder too.")
    return DONE


def _started(folder: Path, stack: ExitStack) -> Place:
    """What chapters share, until the stack ends."""
    for part in ("catalog", "spark", "service"):
        (folder / part).mkdir()
    catalog = stack.enter_context(RestCatalogServer(folder / "catalog", runtime()))
    spark = stack.enter_context(running(folder / "spark", settings(folder / "spark", catalog.uri)))
    return stack.enter_context(place(spark, catalog, folder / "service"))


def _trouble(chapter: Chapter, stage: Stage) -> str:
    """Tell a chapter; what is not as it should be, in one line without a JVM's stack."""
    try:
        chapter.tell(stage)
    except SfnError as error:
        return " ".join(f"{error}".split())
    except Exception as error:  # noqa: BLE001 - whatever Spark raises; it asks the JVM what to say, so long as that lives
        said = f"{error}".partition("\n\tat ")[0]
        return f"{type(error).__name__}: {' '.join(said.split())}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
