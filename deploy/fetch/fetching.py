"""How things are fetched: whole under their final names, more than once where it fails, and told of meanwhile."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

TRIES = 2
TOLD_EVERY = 10.0
SECONDS = 1800  # of one command: a build may have to share the processors


class Failed(Exception):
    """One way to fetch did not work."""


def put(target: Path, what: str, *ways: Callable[[Path], None]) -> Path:
    """Make sure of the folder `target`: fill a new one beside it by the first of the ways that works, then rename that.

    Args:
        what: what it holds and how much that is, for whoever waits.
        ways: fill the folder that they are given; each is named after what it goes by.

    Raises:
        Failed: none of the attempts filled it.
    """
    if target.is_dir():
        return target
    for way in ways:
        for attempt in range(TRIES):
            with tempfile.TemporaryDirectory(prefix="part-", dir=target.parent) as part:
                new = Path(part, "new")
                new.mkdir()
                tell(f"fetching {what}, {way.__name__.replace('_', ' ')}")
                try:
                    way(new)
                except (Failed, subprocess.SubprocessError) as error:
                    tell(f"{target.name}, attempt {attempt + 1} of {TRIES}: {error}")
                    continue
                return new.rename(target)
    raise Failed(f"could not fetch {target}")


def forget_parts(cache: Path) -> None:
    """Remove what was needed on the way, or was left behind by somebody who was killed."""
    for left_behind in cache.glob("part-*"):
        shutil.rmtree(left_behind)


def wheel(lock: Path) -> Callable[[Path], None]:
    """The way to fill a folder with the wheel that a lock pins."""

    def by_pip(folder: Path) -> None:
        pip("install", "--no-deps", "--only-binary=:all:", f"--target={folder}", f"--requirement={lock}")

    return by_pip


def pip(*arguments: str) -> None:
    run(sys.executable, "-m", "pip", "--quiet", *arguments)


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> None:
    """Run a command, and tell now and then that it still runs.

    Args:
        env: what its environment has besides ours.
    """
    with subprocess.Popen(
        command,
        env=os.environ | (env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            said = waited(process)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise Failed(f"{command[0]} ended with {process.returncode}\n{said[-2000:]}")


def waited(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a command; what it said."""
    began = time.monotonic()
    while True:
        try:
            return process.communicate(timeout=TOLD_EVERY)[0]
        except subprocess.TimeoutExpired:
            seconds = round(time.monotonic() - began)
            if seconds >= SECONDS:
                raise
            tell(f"… still at it after {seconds} s")


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
