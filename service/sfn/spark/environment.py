"""What Spark needs on this machine, told in one line before Java tells it in a hundred."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from sfn.errors import NotInstalled

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
