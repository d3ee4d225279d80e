"""What the Dockerfile and the Compose file say."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPOSE: Mapping[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]

BASE = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"}
"""What the base image sets of what is referred to."""


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


BUILD, IMAGE = stages((ROOT / "Dockerfile").read_text())


@dataclass(frozen=True, slots=True)
class Mount:
    """A named volume of a service."""

    volume: str
    writable: bool


def mounts(service: str) -> dict[str, Mount]:
    """The named volumes of a service, by where they are mounted."""
    split = (volume.split(":") for volume in SERVICES[service].get("volumes", []))
    return {target: Mount(name, "ro" not in options) for name, target, *options in split}


def files(service: str) -> dict[str, Path]:
    """Configurations and secrets of a service by where they are mounted."""
    own = SERVICES[service]
    settings = {one["target"]: COMPOSE["configs"][one["source"]] for one in own.get("configs", [])}
    secrets = {f"/run/secrets/{name}": COMPOSE["secrets"][name] for name in own.get("secrets", [])}
    return {target: ROOT / one["file"] for target, one in (settings | secrets).items()}
