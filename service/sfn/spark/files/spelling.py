"""Locations as Spark opens them."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sfn.errors import NotInstalled
from sfn.reader.metadata import AllowedLocations
from sfn.sfnfile.locations import scheme_of
from sfn.spark.files.features import not_supported_error

_DRIVERS: Final = {"s3": ("s3", "s3a"), "gs": ("gs",), "abfss": ("abfss", "abfs")}
"""What Hadoop may have a driver registered as for a scheme, the first one first."""
_REMEDIES: Final = {
    "s3": "start Spark with org.apache.hadoop:hadoop-aws of its own Hadoop's version",
    "gs": "start Spark with com.google.cloud.bigdataoss:gcs-connector",
    "abfss": "start Spark with org.apache.hadoop:hadoop-azure of its own Hadoop's version",
}
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/:=+,-]*")
"""Spelled alike in a path and in a URI."""


def check_file_location(path: str, allowed_locations: AllowedLocations, where: str) -> str:
    """Return the canonical location of a data or delete file, which Hadoop opens as it is.

    Args:
        path: as metadata names it.
        allowed_locations: where it may lie.
        where: the metadata file.

    Raises:
        Unsafe: it lies where a reader is not led.
        NotSupported: Hadoop would open another file: it leaves out the empty segments of a name.
    """
    place = allowed_locations.check_file(path, where)
    if scheme_of(place) != "file" and "//" in place.partition("://")[2]:
        raise not_supported_error(where, f"a file with an empty segment in its name, which Hadoop leaves out: {path}")
    return place


class HadoopUris:
    """How the session opens canonical locations.

    Percent signs of a location stand for themselves, as Iceberg has it. Each URI is spelled as `_metadata.file_path`
    has it, or deleted rows would not be found: by Hadoop itself, which is slow, where that is not plain.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        # Every Hadoop has a driver for this machine's files; each question to the JVM takes half a millisecond.
        self._schemes = {"file": "file"}

    @cached_property
    def _hadoop(self) -> Any:  # noqa: ANN401 - PySpark has no name of its own for what follows
        jvm: Any = self._spark._jvm  # noqa: SLF001 - as above
        return jvm.org.apache.hadoop.fs

    def uri(self, place: str) -> str:
        """The URI of a canonical location.

        Raises:
            NotInstalled: the session has no driver for its scheme.
        """
        scheme = scheme_of(place)
        if scheme not in self._schemes:
            self._schemes[scheme] = self._driver(scheme, place)
        rest = place.removeprefix(f"{scheme}:")
        # Hadoop leaves out a host that is empty.
        path = f"{self._schemes[scheme]}:{rest.removeprefix('//') if scheme == 'file' else rest}"
        return path if _PLAIN.fullmatch(path) else str(self._hadoop.Path(path).toUri().toString())

    def _driver(self, scheme: str, place: str) -> str:
        names = _DRIVERS.get(scheme, (scheme,))
        conf = self._spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - as above
        for name in names:
            try:
                self._hadoop.FileSystem.getFileSystemClass(name, conf)
            except Py4JJavaError:
                continue
            return name
        raise NotInstalled(
            place,
            expected=f"that Spark has a driver for {' or '.join(f'{name}:' for name in names)}",
            found="none",
            remedy=_REMEDIES.get(scheme, ""),
        )
