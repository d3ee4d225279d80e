"""A Spark of the tests' own: a JVM, what it writes to, and how both end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tests.support.programs import CACHES, found

PATIENCE: Final = 60.0
"""Seconds for the JVM to end, which takes half of one alone on a machine."""

_FETCHED: Final = CACHES / "rest-fixture-1.11.0"
# Up in half the time: nothing runs for long enough to be worth a second compiler, and code whose digest is known is
# not verified. With one compiler Java sets aside a fifth of the room for code, 48 MB, and all the tests take 67.
FAST: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:-UsePerfData",
)
_TRUSTING: Final = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
# Spark asks for a module that a Java from PyPI lacks, and that loads no sooner where it is there.
_JAVA: Final = """\
#!/bin/sh
for one in "$@"; do shift; [ "$one" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$one"; done
exec "{java}" "$@"
"""
# Of whoever runs the tests: another Spark, its settings, its arguments.
_FOREIGN: Final = ("HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_DIRS")


def settings(folder: Path, catalog: str) -> Mapping[str, str]:
    """What the session is told.

    Args:
        folder: what it writes that is no table.
        catalog: the address of the REST catalog that it knows as `lake`.
    """
    (jar,) = found("SFN_SPARK_JARS", cache=_FETCHED, target="spark").glob("iceberg-spark-runtime-*.jar")
    jvm = (*FAST, *_TRUSTING, "-Duser.timezone=UTC", f"-Djava.io.tmpdir={folder}")
    return {
        "spark.app.name": "tests",
        "spark.master": "local[2]",
        "spark.jars": str(jar),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(jvm),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": catalog,
        "spark.sql.catalog.lake.cache-enabled": "false",
    }


@contextmanager
def running(folder: Path, told: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session in a JVM of its own, which is gone with all its threads and sockets afterwards.

    Args:
        folder: gets the JVM's log, `spark.log`, beside what it keeps for itself.
        told: the settings.
    """
    conf = SparkConf(loadDefaults=False).setAll(list(told.items()))
    with _gateway(folder, conf) as gateway:
        with pytest.MonkeyPatch.context() as changed:
            changed.setenv("PYSPARK_PYTHON", sys.executable)
            session = SparkSession(SparkContext(conf=conf, gateway=gateway))
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def surroundings(folder: Path) -> Iterator[None]:
    """What a Spark that is started meanwhile finds in its environment: our Java, and nothing of another Spark's.

    Args:
        folder: gets a `java`.
    """
    java = folder / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA.format(java=found("SFN_SPARK_JAVA", cache=_FETCHED, target="spark")))
    java.chmod(0o755)
    with pytest.MonkeyPatch.context() as changed:
        for name in _FOREIGN:
            changed.delenv(name, raising=False)
        changed.setenv("JAVA_HOME", str(java.parents[1]))
        changed.setenv("PYSPARK_PYTHON", sys.executable)  # for what it asks of Python by itself
        changed.setenv("SPARK_LAUNCHER_OPTS", " ".join(FAST))
        changed.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        yield


@contextmanager
def _gateway(folder: Path, conf: SparkConf) -> Iterator[Any]:
    """The JVM that a session is to live in, and the way to it."""
    launch: Callable[..., Any] = launch_gateway  # it has no types
    with (folder / "spark.log").open("wb") as log, surroundings(folder):
        gateway = launch(conf, {"stdout": log, "stderr": log})
    try:
        yield gateway
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # it lives as long as this is open
        gateway.proc.wait(PATIENCE)
        # Else the next session of this process would look for this JVM.
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - nothing public forgets it
