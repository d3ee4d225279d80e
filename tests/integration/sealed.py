"""The image without Docker: its files, its environment and its user, where nothing but the volumes can be written.

Bubblewrap makes the namespaces. The root file system is put together anew: from this machine's libraries and Python,
and from the packages that the image's lock names, taken from the tests' own environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from signal import Signals
from typing import Final, TypeAlias

import pytest

from tests.support.deployment import DEPLOY, IMAGE, ROOT, here

HOME: Final = "/nonexistent"
"""As the Dockerfile's user has it."""

_SYSTEM: Final = ("bin", "sbin", "lib", "lib32", "lib64", "usr")
_PREFIX: Final = "/opt/sfn"
_NAMESPACES: Final = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent")

Done: TypeAlias = subprocess.CompletedProcess[str]


def installed(folder: Path) -> Path:
    """The environment that the image has at `/opt/sfn`: what its lock names, and the project's wheel."""
    root = folder / "opt"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True, timeout=120)
    (site,) = root.glob("lib/python*/site-packages")
    for name in here(DEPLOY / "image.lock"):
        _take(name, site)
    _pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", f"--wheel-dir={folder}", f"{ROOT}")
    (wheel,) = folder.glob("*.whl")
    _pip(f"--python={root}/bin/python", "install", "--no-deps", "--no-index", f"{wheel}")
    return root


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True, timeout=120)


def _take(name: str, site: Path) -> None:
    """Link or copy a distribution of the tests' own environment; its commands stay behind."""
    for file in distribution(name).files or ():
        source, target = Path(str(file.locate())), site / file
        if ".." in file.parts or not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What is run of the image.

    Args:
        root: what `installed` made.
        volumes: folders that can be written, by where they are mounted.
        files: files that can't, by where they are mounted.
        environ: variables beside the image's own.
    """

    root: Path
    volumes: Mapping[str, Path] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)

    def run(self, *command: str) -> Done:
        """Run a command beside what runs already, as `docker exec` does, and wait for its end."""
        return subprocess.run(
            [*self._sealed(), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @contextmanager
    def running(self, log: Path) -> Iterator[Running]:
        """The image's own command as process 1; killed in the end if it still runs."""
        reading, writing = os.pipe()
        command = [*self._sealed("--as-pid-1", "--info-fd", str(writing)), *IMAGE.command("ENTRYPOINT")]
        with os.fdopen(reading) as info, log.open("wb") as output:
            process = subprocess.Popen(
                [*command, *IMAGE.command("CMD")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[writing],
            )
            os.close(writing)
            try:
                yield Running(process, json.load(info)["child-pid"], log)
            finally:
                process.kill()
                process.wait()

    def _sealed(self, *more: str) -> list[str]:
        uid, gid = IMAGE.the("USER").split(":")
        variables = {"HOME": HOME, **IMAGE.pairs("ENV"), **self.environ}
        said = [word for name, value in variables.items() for word in ("--setenv", name, value)]
        return [
            "bwrap",
            *(*_NAMESPACES, "--uid", uid, "--gid", gid, "--cap-drop", "ALL", *more),
            *_system(),
            *("--tmpfs", "/tmp", "--dir", IMAGE.the("WORKDIR")),  # noqa: S108 - the container's
            *("--ro-bind", str(self.root), str(self.root), "--symlink", str(self.root), _PREFIX),
            *("--ro-bind", str(DEPLOY / "image.toml"), "/etc/sfn/sfn.toml"),
            *[word for target, file in self.files.items() for word in ("--ro-bind", str(file), target)],
            *[word for target, folder in self.volumes.items() for word in ("--bind", str(folder), target)],
            *("--remount-ro", "/tmp", "--remount-ro", "/"),  # noqa: S108 - the container's
            *("--clearenv", *said, "--chdir", IMAGE.the("WORKDIR")),
        ]


@dataclass(frozen=True, slots=True)
class Running:
    """The container's process 1.

    Attributes:
        process: bubblewrap, which ends as it ends.
        pid: its own, as it is known out here.
        log: what it writes.
    """

    process: subprocess.Popen[bytes]
    pid: int
    log: Path

    def told(self) -> str:
        return self.log.read_text()

    def stop(self, number: Signals) -> None:
        os.kill(self.pid, number)

    def ended(self) -> bool:
        return self.process.poll() is not None


def _system() -> Iterator[str]:
    """This machine's libraries and Python, which stand for those of the base image."""
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    yield from ("--ro-bind", sys.base_prefix, sys.base_prefix)
    yield from ("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
    yield from ("--proc", "/proc", "--dev", "/dev")


def require() -> None:
    """Skip the test where no container can be made. On a build server a kernel that forbids it is the only excuse."""
    if shutil.which("bwrap") is None:
        if os.environ.get("CI") == "true":  # noqa: TID251 - the test run's own surroundings
            pytest.fail("bubblewrap is not installed")
        pytest.skip("no sealed container: bubblewrap is not installed")
    least = ["bwrap", *_NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    refused = subprocess.run(least, capture_output=True, text=True, timeout=60, check=False)
    if refused.returncode != 0:
        pytest.skip(f"no sealed container: {refused.stderr.strip()}")
