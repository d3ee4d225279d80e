"""Build the wheel and the source distribution into `dist`, and check both.

Two builds must give the same bytes, and the source distribution must build the same wheel. So anybody can build a
release again and compare.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"


class Failed(Exception):
    """A distribution is not as it should be."""


def main() -> None:
    """Build, check, and move the files to `dist`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = build(ROOT, folder / "first", "sdist", "wheel")
        second = build(ROOT, folder / "second", "sdist", "wheel")
        differ("two builds", first, second)
        (sdist,) = (file for file in first if file.suffix == ".gz")
        (wheel,) = (file for file in first if file.suffix == ".whl")
        differ(
            "the wheel and the one of the source distribution",
            [wheel],
            build(unpacked(sdist, folder), folder / "third", "wheel"),
        )
        check_contents(wheel)
        run("twine", "check", "--strict", *first)
        run("check_wheel_contents", wheel)
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for file in (wheel, sdist):
            shutil.copy(file, DIST)
            print(f"{digest(file)}  {file.name}  {file.stat().st_size:,} bytes")


def build(source: Path, into: Path, *targets: str) -> list[Path]:
    """Build with the packages of this environment, which a lock pins. The time stamps are those of the last commit."""
    chosen = [word for target in targets for word in ("--target", target)]
    environ = os.environ | {"SOURCE_DATE_EPOCH": epoch()}
    run("hatchling", "build", "--directory", into, *chosen, cwd=source, env=environ)
    return sorted(into.iterdir())


def epoch() -> str:
    """Return the time of the last commit, or what the caller says."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def differ(what: str, one: list[Path], other: list[Path]) -> None:
    """Compare two builds.

    Raises:
        Failed: they differ.
    """
    if [(file.name, digest(file)) for file in one] != [(file.name, digest(file)) for file in other]:
        raise Failed(f"{what} differ: {[str(file) for file in (*one, *other)]}")


def digest(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def unpacked(sdist: Path, folder: Path) -> Path:
    """Unpack a source distribution. Return its folder."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    return source


def check_contents(wheel: Path) -> None:
    """Check that the wheel has each tracked file of `service`, and no other one.

    Raises:
        Failed: the files differ.
    """
    command = ["git", "ls-files", "service"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    expected = {name.removeprefix("service/") for name in tracked}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    if found != expected:
        raise Failed(f"{wheel.name}: missing or superfluous: {', '.join(sorted(found ^ expected))}")


def run(module: str, *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """Run a program of this environment.

    Raises:
        Failed: it ended with another status than 0.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{module} ended with {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    try:
        main()
    except (Failed, subprocess.SubprocessError) as error:
        sys.exit(str(error))
