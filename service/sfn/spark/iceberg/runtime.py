"""Whether a session has Iceberg's runtime, and the one that was made for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sfn.errors import NotInstalled

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
