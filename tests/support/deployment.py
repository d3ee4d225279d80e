"""What the Dockerfile, the Compose file and the lock files of `make lock` say."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from string import Template
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPOSE: Mapping[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]

BASE = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"}
"""What the base image sets of what is referred to."""

DEPLOY = ROOT / "deploy"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the Dockerfile.

    Attributes:
        instructions: keyword and the rest, in their order.
    """

    instructions: tuple[tuple[str, str], ...]

    def every(self, keyword: str) -> list[str]:
        return [rest for word, rest in self.instructions if word == keyword]

    def the(self, keyword: str) -> str:
        """What the one instruction of a keyword says."""
        (only,) = self.every(keyword)
        return only

    def command(self, keyword: str) -> list[str]:
        """An instruction that is, or ends with, a command as a JSON array."""
        found: list[str] = json.loads(re.sub(r"^.*?(?=\[)", "", self.the(keyword)))
        return found

    def pairs(self, keyword: str) -> dict[str, str]:
        """The `NAME=value` of all instructions of a keyword, with what they refer to."""
        words = [word for rest in self.every(keyword) for word in shlex.split(rest)]
        split = (word.split("=", 1) for word in words)
        return {name: Template(value).safe_substitute(BASE) for name, value in split}

    def copied(self) -> list[str]:
        """The sources of what it copies from the working tree."""
        words = [shlex.split(rest) for rest in self.every("COPY") if "--from=" not in rest]
        return [source for one in words for source in one[:-1]]


def stages(text: str) -> Iterator[Stage]:
    """The stages of a Dockerfile."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    instructions = [line.split(maxsplit=1) for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines()]
    begun: list[tuple[str, str]] = []
    for keyword, rest in instructions:
        if keyword == "FROM" and begun:
            yield Stage(tuple(begun))
            begun = []
        begun.append((keyword, rest))
    yield Stage(tuple(begun))


EXTRAS_OF_IMAGE = ("s3", "azure", "gcs", "postgres", "nats", "pyiceberg", "otel")
FOLDER_OF_ENGINE = DEPLOY / "compose" / "engine"

PYTHON, BUILD, IMAGE = stages((ROOT / "Dockerfile").read_text())
(ENGINE,) = stages((FOLDER_OF_ENGINE / "Dockerfile").read_text())


@dataclass(frozen=True, slots=True)
class Mount:
    """A named volume of a service."""

    volume: str
    writable: bool


def mounts(service: str) -> dict[str, Mount]:
    """The named volumes of a service, by where they are mounted."""
    split = (volume.split(":") for volume in SERVICES[service].get("volumes", []))
    return {target: Mount(name, "ro" not in options) for name, target, *options in split if not name.startswith(".")}


def folders(service: str) -> dict[str, Path]:
    """Files and folders of the repository that a service mounts as they are, by where they are mounted."""
    split = (volume.split(":") for volume in SERVICES[service].get("volumes", []))
    return {target: ROOT / name for name, target, *_ in split if name.startswith(".")}


def files(service: str) -> dict[str, Path]:
    """Configurations and secrets of a service by where they are mounted."""
    own = SERVICES[service]
    settings = {one["target"]: COMPOSE["configs"][one["source"]] for one in own.get("configs", [])}
    secrets = {f"/run/secrets/{name}": COMPOSE["secrets"][name] for name in own.get("secrets", [])}
    return {target: ROOT / one["file"] for target, one in (settings | secrets).items()}


def entries(lock: Path) -> dict[str, str]:
    """What a lock says of each distribution, remarks left out: version, marker, hashes."""
    text = re.sub(r"^ *#.*\n", "", lock.read_text(), flags=re.MULTILINE)
    found = re.findall(r"^(([\w.-]+)==.*\n(?:    --hash=.*\n)+)", text, flags=re.MULTILINE)
    return {name: entry for entry, name in found}


def here(lock: Path) -> set[str]:
    """The distributions that a lock installs on this machine."""
    heads = (Requirement(entry.split("\\")[0]) for entry in entries(lock).values())
    return {canonicalize_name(head.name) for head in heads if head.marker is None or head.marker.evaluate()}


def runtime() -> list[str]:
    """What the image's service asks for."""
    project = PROJECT["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(one for extra in EXTRAS_OF_IMAGE for one in optional[extra])]


def closure(asked: Iterable[str]) -> set[str]:
    """The distributions that requirements need on this machine, directly or not, as the installed ones say.

    One that is not installed needs nothing.
    """
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(one), "") for one in asked]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found.add(name)
        for wanted in {"", *requirement.extras}:
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                waiting += [(Requirement(one), wanted) for one in _requires(name)]
    return found


def _requires(name: str) -> Iterator[str]:
    try:
        yield from requires(name) or ()
    except PackageNotFoundError:
        return
