"""Iceberg's REST compatibility kit, its own Java client, as a process, and what became of each of its tests.

`python -m tests.integration.rck` tries Iceberg's own server itself, and writes the outcomes down for the test.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self
from xml.etree import ElementTree as ET

from sfn.demo.environment import RestCatalogServer, ServerRuntime
from tests.support.pages import ROOT
from tests.support.programs import CACHES, found, runtime

EXPECTED: Final = Path(__file__).with_name("rck.json")
PASSED, FAILED, SKIPPED, ABORTED = "passed", "failed", "skipped", "aborted"
PATIENCE: Final = 500.0
"""Seconds for what takes three quarters of a minute alone on a machine."""

_SUITE: Final = "org.apache.iceberg.rest.RESTCompatibilityKitSuite"
_JVM: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
# Iceberg's JDBC catalog, strict as the server has it, creates no namespace by itself.
_TOLD: Final = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    "-Drck.local=false",
    "-Drck.requires-namespace-create=true",
)
_REPORT: Final = "TEST-junit-platform-suite.xml"
_PINNED: Final = ("rest-fixture", "rck")


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of the kit's tests.

    Attributes:
        jars: the digest of what is pinned of the server and the kit.
        tests: how each ended, by class and name.
    """

    jars: str
    tests: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    def named(self) -> Iterator[tuple[str, str]]:
        """Outcomes, and what names each."""
        yield from self.tests.items()

    def counts(self) -> str:
        """How many there are of each outcome."""
        return ", ".join(f"{count} {outcome}" for outcome, count in Counter(self.tests.values()).most_common())


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the kit.

    Attributes:
        outcomes: of its tests.
        why: what those said that failed.
        seconds: it took.
    """

    outcomes: Outcomes
    why: Mapping[str, str]
    seconds: float


def compatibility_kit() -> Path:
    """The folder of the kit's own jars; without them the test is skipped, but fails on a build server."""
    return found("SFN_RCK", cache=CACHES / "rest-fixture-1.11.0", target="rck")


def secluded(folder: Path, runtime: ServerRuntime) -> ServerRuntime:
    """A Java whose `/tmp` is a folder of this one: some of the kit's tables are there, whatever it is told.

    Where bubblewrap makes no namespaces it is the machine's own, and keeps what the kit leaves.

    Args:
        folder: whose files it sees.
    """
    (folder / "tmp").mkdir()
    binds = [("/", "/"), (folder / "tmp", "/tmp"), *((one, one) for one in (folder, runtime.jars.parent))]  # noqa: S108
    options = [word for place, target in binds for word in ("--bind", str(place), str(target))]
    line = ["bwrap", *options, "--dev-bind", "/dev", "/dev", "--die-with-parent"]
    if shutil.which("bwrap") is None or subprocess.run([*line, "true"], capture_output=True, check=False).returncode:
        return runtime
    java = folder / "java"
    java.write_text(f'#!/bin/sh\nexec {shlex.join([*line, str(runtime.java)])} "$@"\n')
    java.chmod(0o755)
    return replace(runtime, java=java)


def pinned() -> str:
    """The digest of what is pinned of the server and the kit."""
    files = [ROOT / "deploy" / folder / "jars.sha256" for folder in _PINNED]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def tried(folder: Path, runtime: ServerRuntime, kit: Path, uri: str) -> Run:
    """Try a catalog. All of the kit's tests are run, one after the other.

    Args:
        folder: for its log and its report.
        runtime: Java, and the jars that server and kit share.
        kit: the folder of its own jars.
        uri: the catalog's address.

    Raises:
        AssertionError: the kit did not run.
    """
    (folder / "scratch").mkdir()
    log, scratch = folder / "kit.log", f"-Djava.io.tmpdir={folder / 'scratch'}"
    jvm = [*_JVM, scratch, *_TOLD, f"-Duri={uri}", "-cp", f"{kit}/*:{runtime.jars}/*"]
    launcher = ["org.junit.platform.console.ConsoleLauncher", "execute", f"--select-class={_SUITE}"]
    line = [str(runtime.java), *jvm, *launcher, f"--reports-dir={folder}"]
    began = time.monotonic()
    with log.open("wb") as output:
        # No variable of the user's: the kit reads all that begin with CATALOG_.
        subprocess.run(line, env={}, stdout=output, stderr=output, timeout=PATIENCE, check=False)
    seconds = time.monotonic() - began
    report = folder / _REPORT
    assert report.is_file(), log.read_text(errors="replace")[-4000:]
    cases = {f"{_class(case)}.{case.get('name')}": case for case in _cases(report)}
    tests = {name: _outcome(case) for name, case in sorted(cases.items())}
    why = {name: _why(case) for name, case in cases.items() if tests[name] == FAILED}
    return Run(Outcomes(pinned(), tests), why, seconds)


def _cases(report: Path) -> Iterator[ET.Element]:
    return ET.parse(report).iter("testcase")  # noqa: S314 - it is ours


def _class(case: ET.Element) -> str:
    return case.get("classname", "").rpartition(".")[2]


def _outcome(case: ET.Element) -> str:
    skipped = case.find("skipped")
    if skipped is not None:
        # A test that aborts itself, as what it needs is not so, is reported as a skipped one with its exception.
        return ABORTED if "TestAbortedException" in (skipped.text or "") else SKIPPED
    return FAILED if _trouble(case) is not None else PASSED


def _why(case: ET.Element) -> str:
    trouble = _trouble(case)
    return "" if trouble is None else (trouble.text or "")[:2000]


def _trouble(case: ET.Element) -> ET.Element | None:
    return next((part for part in case if part.tag in {"failure", "error"}), None)


def main() -> None:
    """Try it."""
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        found = secluded(folder, runtime())
        for part in ("catalog", "kit"):
            (folder / part).mkdir()
        with RestCatalogServer(folder / "catalog", found) as server:
            run = tried(folder / "kit", found, compatibility_kit(), server.uri)
    EXPECTED.write_text(run.outcomes.text())
    print(f"{run.outcomes.counts()} in {run.seconds:.0f} s")


if __name__ == "__main__":
    main()
