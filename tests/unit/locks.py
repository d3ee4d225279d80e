"""The files that `make lock` writes, and what they should hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.deployment import PROJECT, ROOT

DEPLOY = ROOT / "deploy"


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
    extras = ("pyiceberg", "s3", "azure", "gcs", "postgres", "nats")
    return [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]


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
