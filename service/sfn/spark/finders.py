"""What Python looks for modules with, in Spark's processes."""

from __future__ import annotations

import os
import sys
from zipimport import zipimporter


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
