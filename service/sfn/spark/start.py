"""What Spark needs on this machine, told in one line before Java tells it in a hundred."""

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
from sfn.settings.service import java_home

# ── environment: What Spark needs on this machine

SPARK: Final = "4.1"
"""The version that this is made for and tested with."""
OLDEST_JAVA, NEWEST_JAVA = 17, 21
"""Spark 4.1 needs the first; after the second one Java has no security manager, which its Hadoop asks for."""

_INSTALL_REMEDY: Final = "pip install '.[spark]'"
_NEWEST_PANDAS: Final = 3
_PATIENCE: Final = 60.0


def check_packages() -> None:
    """Refuse packages that Spark does not run with.

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
    """Refuse a machine without a Java that runs Spark.

    Args:
        home: `JAVA_HOME`, which counts before what `FACADE_PATH` leads to.

    Raises:
        NotInstalled: there is none, or one that is too old or too new.
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
        said = (output.strip() or "nothing").splitlines()[0]
        raise NotInstalled(java, expected=expected, found=said, remedy=remedy)


def _java_version_text(java: str) -> str:
    """What a Java says of its version; why it does not, if it can't be started."""
    try:
        ended = subprocess.run(  # noqa: S603 - the Java that Spark itself would start
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_PATIENCE
        )
    except OSError as error:
        # It may be another processor's.
        return f"one that can't be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"one that says nothing in {_PATIENCE:.0f} s"
    return ended.stderr.decode(errors="replace")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


# ── finders: What Python looks for modules with


def forget_archive_finders() -> None:
    """Forget the finders of the archives that this process was started with.

    With each request PySpark empties the caches of all finders (`pyspark.worker_util.setup_spark_files`), upon which
    those of an archive read its directory anew, before Python 3.12 at once: for each of PySpark's packages that of its
    own archive, and that of Spark's core, 5,000 files. That takes longer than to read a table's metadata. A finder that
    is forgotten is made again when something is looked for, from what `zipimport` knows of the archive: whoever
    replaces one that a process was started with starts the process anew. Archives that jobs bring are left alone.
    """
    started_with = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # noqa: TID251 - how Spark starts its Pythons
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.archive in started_with:
            del sys.path_importer_cache[path]


# ── runtime: Whether a session has Iceberg's runtime

ICEBERG_VERSION: Final = "1.11.0"
"""Of Iceberg, that this is tested with."""
_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_JAR: Final = re.compile(r"iceberg-spark-runtime-(\d+\.\d+)_(\d+\.\d+)-[^/]*\.jar$")


@dataclass(frozen=True, slots=True)
class RuntimePlatform:
    """What a runtime is made for: the first two numbers of each version."""

    spark: str
    scala: str

    @property
    def coordinate(self) -> str:
        """The runtime's, for `spark.jars.packages`."""
        return f"org.apache.iceberg:iceberg-spark-runtime-{self.spark}_{self.scala}:{ICEBERG_VERSION}"


def missing_runtime(spark: SparkSession) -> str:
    """What keeps Iceberg's runtime from being used, for people; empty where nothing does."""
    try:
        check_runtime(spark)
    except NotInstalled as refusal:
        return refusal.found
    return ""


def check_runtime(spark: SparkSession, otherwise: str = ", or engine='sfn'") -> None:
    """Refuse a session without the runtime that was made for it.

    Args:
        otherwise: what can be done without one.

    Raises:
        NotInstalled: it has none, or another one.
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
        # Nothing else is raised of a class that exists.
        raise NotInstalled("Spark", expected=expected, found="no class of Iceberg's", remedy=remedy) from None
    jar = found.getProtectionDomain().getCodeSource().getLocation().toString()
    made_for = _JAR.search(jar)
    # A jar that somebody built themselves is called as they like.
    if made_for is not None and RuntimePlatform(*made_for.groups()) != platform:
        raise NotInstalled("Spark", expected=expected, found=jar.rpartition("/")[2], remedy=remedy)


def _short_version(version: str) -> str:
    return ".".join(version.split(".")[:2])


# ── starting: A session that can read with every engine

FACADE_CATALOG: Final = "sfn"
"""What a session calls the facade that it is given."""
ICEBERG_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
"""Iceberg's, of Spark's SQL."""

_SCALA: Final = "2.13"
"""That PySpark's own jars are for."""


def session(
    *,
    jar: str | os.PathLike[str] | None = None,
    facade: str | None = None,
    token: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session with Iceberg's runtime, and with a facade's catalog as `sfn`, if there is one.

    Whoever has a session already needs none of this: `read` says what that lacks.

    Args:
        jar: Iceberg's runtime, a file; None: Spark fetches it from Maven Central, once.
        facade: the address of a facade's catalog, such as `http://127.0.0.1:8087/iceberg`.
        token: a reader's token of it.
        conf: more of Spark's configuration, which counts before all of this.

    Raises:
        NotInstalled: PySpark, pandas, Java or the jar is missing, or of a version that does not do.
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
        remedy = f"fetch {platform.coordinate}, or leave `jar` out: then Spark does"
        raise NotInstalled(os.fspath(jar), expected="the file of Iceberg's runtime", found="none", remedy=remedy)
    return {"spark.jars": os.fspath(jar)}


def _facade(uri: str | None, token: str | None) -> Mapping[str, str]:
    if uri is None:
        return {}
    key = f"spark.sql.catalog.{FACADE_CATALOG}"
    settings = {key: "org.apache.iceberg.spark.SparkCatalog", f"{key}.type": "rest", f"{key}.uri": uri}
    # What a facade says must not be older than its SFN files.
    return settings | {f"{key}.cache-enabled": "false"} | ({f"{key}.token": token} if token else {})
