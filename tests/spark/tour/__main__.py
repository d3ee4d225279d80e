"""`python -m tests.spark.tour [CHAPTER …]`: print the life of a table in Spark SQL, step by step."""

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
from tests.spark.session import spark_session, spark_settings
from tests.spark.tour.managing import HADOOP, MANAGE
from tests.spark.tour.reading import AS_OF, SELECT, WALK
from tests.spark.tour.stage import Chapter, Place, Stage, place
from tests.spark.tour.writing import CREATE, EVOLVE, INSERT
from tests.support.programs import runtime

DONE, FAILED = 0, 1
_RULE: Final = "─"
CHAPTERS: Final[Sequence[Chapter]] = (CREATE, INSERT, SELECT, AS_OF, MANAGE, EVOLVE, WALK, HADOOP)
_PREFACE: Final = """\
The life of a table in Spark SQL, with a real REST catalog and the listener.
Spark has three catalogs: `gated` writes through the listener's gateway, `lake` is the catalog itself, and `sfn` is the
facade, which needs no catalog and reads SFN files."""


def main() -> int:
    """Run the chapters. Return 1 if a check failed."""
    parser = ArgumentParser(prog="python -m tests.spark.tour", description=__doc__)
    known = {one.name: one for one in CHAPTERS}
    listed = "; ".join(f"{one.name}: {one.title}" for one in CHAPTERS)
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", help=f"the chapters; default: all. {listed}")
    names: list[str] = parser.parse_args().chapters
    for name in names:
        if name not in known:
            parser.error(
                f"expected a chapter, one of {', '.join(known)}; found {name!r}; {suggest_name(name, [*known])}"
            )
    return run_chapters([known[name] for name in names] or CHAPTERS)


def run_chapters(chapters: Sequence[Chapter]) -> int:
    """Run chapters in a temporary folder. The folder and all processes are removed at the end."""
    began = time.monotonic()
    print(_PREFACE)
    try:
        with TemporaryDirectory(prefix="sfn-tour-") as name, ExitStack() as stack:
            shared = _start(Path(name).resolve(), stack)
            print(f"Started in {time.monotonic() - began:.0f} s, in the folder {name}.")
            for number, chapter in enumerate(chapters, 1):
                print(f"\n{_RULE * 4} {number} of {len(chapters)}. {chapter.title} ({chapter.name}) {_RULE * 4}")
                if wrong := _error_of(chapter, Stage(shared, Narrator(print))):
                    print(f"\nthe chapter `{chapter.name}`: {wrong}", file=sys.stderr)
                    return FAILED
    # Where the tests would be skipped, such as without Java, the reason is printed.
    except (SfnError, pytest.skip.Exception) as error:
        print(f"\nthe start: {error}", file=sys.stderr)
        return FAILED
    print(f"\n✓ All checks passed, in {time.monotonic() - began:.0f} s.")
    print("All processes and the folder were removed.")
    return DONE


def _start(folder: Path, stack: ExitStack) -> Place:
    """Start the processes that the chapters share, until the stack ends."""
    for part in ("catalog", "spark", "service"):
        (folder / part).mkdir()
    catalog = stack.enter_context(RestCatalogServer(folder / "catalog", runtime()))
    spark = stack.enter_context(spark_session(folder / "spark", spark_settings(folder / "spark", catalog.uri)))
    return stack.enter_context(place(spark, catalog, folder / "service"))


def _error_of(chapter: Chapter, stage: Stage) -> str:
    """Run a chapter. Return its error in one line without the JVM's stack, or an empty text."""
    try:
        chapter.run(stage)
    except SfnError as error:
        return " ".join(f"{error}".split())
    except Exception as error:  # noqa: BLE001 - Spark raises many types; the text comes from the JVM
        message = f"{error}".partition("\n\tat ")[0]
        return f"{type(error).__name__}: {' '.join(message.split())}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
