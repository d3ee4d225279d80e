"""The Spark session of the tests: its JVM, its settings, and a facade that is not in the driver."""

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

from sfn.app.endpoints import FacadeFolders
from sfn.app.standalone import EmbeddedFacade
from tests.support.pages import ROOT
from tests.support.programs import CACHES, found

FACADE_URI, FACADE_TOKEN = "spark.sfn.facade.uri", "spark.sfn.facade.token"
SHUTDOWN_SECONDS: Final = 60.0
"""Seconds for the JVM to end, which takes half of one alone on a machine."""

_DOWNLOADS: Final = CACHES / "rest-fixture-1.11.0"
# Up in half the time: nothing runs for long enough to be worth a second compiler, and code whose digest is known is
# not verified. With one compiler Java sets aside a fifth of the room for code, 48 MB, and all the tests take 67.
JVM_OPTIONS: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:-UsePerfData",
)
_NO_VERIFICATION: Final = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
# Spark asks for a module that a Java from PyPI lacks, and that loads no sooner where it is there.
_JAVA_SCRIPT: Final = """\
#!/bin/sh
for one in "$@"; do shift; [ "$one" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$one"; done
exec "{java}" "$@"
"""
# Spark puts an archive of PySpark first in the path, which has no compiled modules: each daemon would compile them.
# Each worker of Spark's own daemon would import PyIceberg, which takes a second.
_PYTHON_SCRIPT: Final = """\
#!/bin/sh
export PYTHONPATH="{root}:${{PYTHONPATH#*/pyspark.zip:}}"
[ "$2" != pyspark.daemon ] || {{ shift 2; set -- -m tests.spark.daemon "$@"; }}
exec "{python}" "$@"
"""
INTERPRETED: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings of a session for tables of a handful of rows, which are read sooner than code for them is compiled."""
SMALL_TABLES: Final = {
    **INTERPRETED,
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Spark keeps the plans of the last 1,000 queries.
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
}
"""The same, with settings that only a new JVM takes."""
# Variables that point to another Spark, its settings and its arguments.
_FOREIGN: Final = ("HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_DIRS")


def spark_settings(folder: Path, catalog: str) -> Mapping[str, str]:
    """Return the settings of the session.

    Args:
        folder: what it writes that is no table.
        catalog: the address of the REST catalog that it knows as `lake`.
    """
    (jar,) = found("SFN_SPARK_JARS", cache=_DOWNLOADS, target="spark").glob("iceberg-spark-runtime-*.jar")
    jvm = (*JVM_OPTIONS, *_NO_VERIFICATION, "-Duser.timezone=UTC", f"-Djava.io.tmpdir={folder}")
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
def spark_session(folder: Path, options: Mapping[str, str], python: str = sys.executable) -> Iterator[SparkSession]:
    """A session in a JVM of its own, which is gone with all its threads and sockets afterwards.

    Args:
        folder: gets the JVM's log, `spark.log`, and Spark's own files.
        options: the settings of the session.
        python: starts Spark's workers.
    """
    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    with _gateway(folder, conf, python) as gateway:
        with pytest.MonkeyPatch.context() as changed:
            changed.setenv("PYSPARK_PYTHON", python)
            session = SparkSession(SparkContext(conf=conf, gateway=gateway))
        try:
            yield session
        finally:
            session.stop()


def warm_python(folder: Path) -> str:
    """Return a Python whose Spark workers are forks of a process that has imported what they need.

    Args:
        folder: gets the `python`.
    """
    script = folder / "python"
    script.write_text(_PYTHON_SCRIPT.format(root=ROOT, python=sys.executable))
    script.chmod(0o755)
    return str(script)


@contextmanager
def spark_environment(folder: Path, python: str = sys.executable) -> Iterator[None]:
    """What a Spark that is started meanwhile finds in its environment: our Java, and nothing of another Spark's.

    Args:
        folder: gets a `java`.
        python: starts Spark's workers.
    """
    java = folder / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA_SCRIPT.format(java=found("SFN_SPARK_JAVA", cache=_DOWNLOADS, target="spark")))
    java.chmod(0o755)
    with pytest.MonkeyPatch.context() as changed:
        for name in _FOREIGN:
            changed.delenv(name, raising=False)
        changed.setenv("JAVA_HOME", str(java.parents[1]))
        changed.setenv("PYSPARK_PYTHON", python)  # for what it asks of Python by itself
        changed.setenv("SPARK_LAUNCHER_OPTS", " ".join(JVM_OPTIONS))
        changed.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        yield


@contextmanager
def _gateway(folder: Path, conf: SparkConf, python: str) -> Iterator[Any]:
    """The JVM that a session is to live in, and the way to it."""
    launch: Callable[..., Any] = launch_gateway  # it has no types
    with (folder / "spark.log").open("wb") as log, spark_environment(folder, python):
        gateway = launch(conf, {"stdout": log, "stderr": log})
    try:
        yield gateway
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # it lives as long as this is open
        gateway.proc.wait(SHUTDOWN_SECONDS)
        # Else the next session of this process would look for this JVM.
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - nothing public forgets it


@contextmanager
def changed_settings(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session, until the block ends."""
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
def remote_facade(spark: SparkSession, directory: str) -> Iterator[EmbeddedFacade]:
    """Give a session a facade that is not the driver's own, over a table's directory and its siblings."""
    facade = EmbeddedFacade(FacadeFolders([f"file://{Path(directory).parent}"]))
    try:
        with changed_settings(spark, {FACADE_URI: facade.url, FACADE_TOKEN: facade.token}):
            yield facade
    finally:
        facade.stop()
