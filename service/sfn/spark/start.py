"""Check the requirements of Spark on this machine, and start sessions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final
from zipimport import zipimporter

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sfn.errors import NotInstalled
from sfn.extras import install_command
from sfn.settings.sections import java_home

SPARK: Final = "4.1"
"""The Spark version that this package supports."""
OLDEST_JAVA, NEWEST_JAVA = 17, 21
"""Spark 4.1 needs at least Java 17; later than 21 Java has no security manager, which Spark's Hadoop needs."""

_INSTALL_REMEDY: Final = install_command("spark")
_NEWEST_PANDAS: Final = 3
_PATIENCE: Final = 60.0


def check_packages() -> None:
    """Check that the installed packages work with Spark.

    Raises:
        NotInstalled: another PySpark than 4.1, or pandas 3.
    """
    pyspark, pandas = _version("pyspark"), _version("pandas")
    if pyspark is None or not pyspark.startswith(f"{SPARK}."):
        raise NotInstalled("pyspark", expected=f"version {SPARK}", found=pyspark or "none", remedy=_INSTALL_REMEDY)
    if pandas is not None and int(pandas.split(".")[0]) >= _NEWEST_PANDAS:
        raise NotInstalled(
            "pandas", expected=f"a version before 3, for PySpark {SPARK}", found=pandas, remedy=_INSTALL_REMEDY
        )


def check_java(home: str | None) -> None:
    """Check that this machine has a Java that runs Spark.

    Args:
        home: `JAVA_HOME`, which has priority over `PATH`.

    Raises:
        NotInstalled: there is no Java, or one that is too old or too new.
    """
    expected = f"a Java from {OLDEST_JAVA} to {NEWEST_JAVA}"
    remedy = f"install one (Debian: apt-get install openjdk-{OLDEST_JAVA}-jre-headless), or set JAVA_HOME to one"
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise NotInstalled(
            "Java", expected=expected, found=f"none in JAVA_HOME, {home}" if home else "none", remedy=remedy
        )
    output = _java_version_text(java)
    found = re.search(r'version "(\d+)', output)
    if found is None or not OLDEST_JAVA <= int(found[1]) <= NEWEST_JAVA:
        first_line = (output.strip() or "nothing").splitlines()[0]
        raise NotInstalled(java, expected=expected, found=first_line, remedy=remedy)


def _java_version_text(java: str) -> str:
    """Return a Java's own version text, or the reason why it can't be started."""
    try:
        ended = subprocess.run(  # noqa: S603 - the Java that Spark itself would start
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_PATIENCE
        )
    except OSError as error:
        # The file may be for another processor.
        return f"one that can't be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"one that does not answer in {_PATIENCE:.0f} s"
    return ended.stderr.decode(errors="replace")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def forget_archive_finders() -> None:
    """Drop the import finders of the archives that this process was started with.

    With each request PySpark empties the caches of all finders (`pyspark.worker_util.setup_spark_files`). A finder of
    an archive then reads the archive's directory again, before Python 3.12 at once: for each of PySpark's packages that
    of PySpark's own archive, and that of Spark's core, 5,000 files. That takes longer than to read a table's metadata.
    A dropped finder is created again when needed, from the directory that `zipimport` has cached. That is safe, because
    an archive that is replaced needs a restart of the process anyway. Archives of jobs are not affected.
    """
    started_with = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # noqa: TID251 - how Spark starts its Pythons
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.archive in started_with:
            del sys.path_importer_cache[path]


ICEBERG_VERSION: Final = "1.11.0"
"""The version of Iceberg that this package is tested with."""
_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_JAR: Final = re.compile(r"iceberg-spark-runtime-(\d+\.\d+)_(\d+\.\d+)-[^/]*\.jar$")


@dataclass(frozen=True, slots=True)
class RuntimePlatform:
    """The versions that a runtime is made for: the first two numbers of each."""

    spark: str
    scala: str

    @property
    def coordinate(self) -> str:
        """The Maven coordinate of the runtime, for `spark.jars.packages`."""
        return f"org.apache.iceberg:iceberg-spark-runtime-{self.spark}_{self.scala}:{ICEBERG_VERSION}"


def missing_runtime(spark: SparkSession) -> str:
    """Return why Iceberg's runtime can't be used, as text; empty if it can."""
    try:
        check_runtime(spark)
    except NotInstalled as refusal:
        return refusal.found
    return ""


def check_runtime(spark: SparkSession, otherwise: str = ", or engine='sfn'") -> None:
    """Check that a session has Iceberg's runtime for its versions.

    Args:
        otherwise: the alternative without the runtime, for the remedy.

    Raises:
        NotInstalled: the session has no runtime, or one for other versions.
    """
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        remedy = f"use a classic session{otherwise}"
        raise NotInstalled("Spark", expected="a session with its JVM", found="Spark Connect", remedy=remedy)
    platform = RuntimePlatform(
        *(_short_version(text) for text in (spark.version, jvm.scala.util.Properties.versionNumberString()))
    )
    remedy = f"start the session with spark.jars.packages={platform.coordinate}, or spark.jars=<its file>"
    expected = f"Iceberg's runtime for Spark {platform.spark} and Scala {platform.scala}"
    try:
        found = jvm.org.apache.spark.util.Utils.classForName(_CLASS, False, True)
    except Py4JJavaError:
        # `classForName` raises this error only if the class is missing.
        raise NotInstalled("Spark", expected=expected, found="no class of Iceberg's", remedy=remedy) from None
    jar = found.getProtectionDomain().getCodeSource().getLocation().toString()
    made_for = _JAR.search(jar)
    # A jar that somebody built has any name.
    if made_for is not None and RuntimePlatform(*made_for.groups()) != platform:
        raise NotInstalled("Spark", expected=expected, found=jar.rpartition("/")[2], remedy=remedy)


def _short_version(version: str) -> str:
    return ".".join(version.split(".")[:2])


FACADE_CATALOG: Final = "sfn"
"""The name of the facade's catalog in a session."""
ICEBERG_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
"""The class of Iceberg's SQL extensions."""

_SCALA: Final = "2.13"
"""The Scala version of PySpark's own jars."""


def session(
    *,
    jar: str | os.PathLike[str] | None = None,
    facade: str | None = None,
    token: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with Iceberg's runtime, and with a facade's catalog as `sfn`, if there is a facade.

    An existing session works as well: `read` reports what it lacks.

    Args:
        jar: the file of Iceberg's runtime; None: Spark downloads it from Maven Central, once.
        facade: the address of a facade's catalog, such as `http://127.0.0.1:8087/iceberg`.
        token: a reader's token for the facade.
        conf: more Spark settings; they have priority.

    Raises:
        NotInstalled: PySpark, pandas, Java or the jar is missing, or has the wrong version.
    """
    check_packages()
    check_java(java_home())
    settings = {"spark.sql.extensions": ICEBERG_EXTENSIONS, **_runtime(jar), **_facade(facade, token), **(conf or {})}
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _runtime(jar: str | os.PathLike[str] | None) -> Mapping[str, str]:
    platform = RuntimePlatform(SPARK, _SCALA)
    if jar is None:
        return {"spark.jars.packages": platform.coordinate}
    if not Path(jar).is_file():
        remedy = f"download {platform.coordinate}, or leave `jar` out: then Spark does"
        raise NotInstalled(os.fspath(jar), expected="the file of Iceberg's runtime", found="none", remedy=remedy)
    return {"spark.jars": os.fspath(jar)}


def _facade(uri: str | None, token: str | None) -> Mapping[str, str]:
    if uri is None:
        return {}
    key = f"spark.sql.catalog.{FACADE_CATALOG}"
    settings = {key: "org.apache.iceberg.spark.SparkCatalog", f"{key}.type": "rest", f"{key}.uri": uri}
    # A cached answer of the facade could be older than its SFN files.
    return settings | {f"{key}.cache-enabled": "false"} | ({f"{key}.token": token} if token else {})
