"""A session that can read with every engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from sfn.errors import NotInstalled
from sfn.settings.service import java_home
from sfn.spark.environment import SPARK, check_java, check_packages
from sfn.spark.iceberg.runtime import RuntimePlatform

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
