"""What a session is told, and what it tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sfn.app.endpoints import FacadeFolders
from sfn.app.standalone import EmbeddedFacade
from sfn.errors import SfnError

URI, TOKEN = "spark.sfn.facade.uri", "spark.sfn.facade.token"


@contextmanager
def told(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    """A session of which more is set."""
    before = {name: spark.conf.get(name, None) for name in options}
    for name, value in options.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


@contextmanager
def elsewhere(spark: SparkSession, directory: str) -> Iterator[EmbeddedFacade]:
    """A session that has a facade which is not the driver's own, over a table's directory and those beside it."""
    facade = EmbeddedFacade(FacadeFolders([f"file://{Path(directory).parent}"]))
    try:
        with told(spark, {URI: facade.url, TOKEN: facade.token}):
            yield facade
    finally:
        facade.stop()


def refusal(kind: type[Exception], action: Callable[[], object]) -> str:
    """What an action is refused with, which is one line that has a remedy."""
    with pytest.raises(Exception, match=r".") as refused:
        action()
    assert type(refused.value) is kind
    assert "\n" not in f"{refused.value}"
    # A facade elsewhere says its own.
    assert not isinstance(refused.value, SfnError) or refused.value.remedy or "; " in refused.value.found
    return f"{refused.value}"
