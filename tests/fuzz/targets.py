"""What can be fuzzed. Nothing of the service is imported here: a target's code is watched from its import on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOUND: Final = ROOT / "build" / "fuzz"
"""Where the inputs of each target are kept from run to run, and those that broke it."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is fuzzed.

    Attributes:
        module: has `seeds`, `run` and `mutated`.
        watched: packages whose lines guide the fuzzer.
        longest: bytes of an input.
        memory: MiB that the process may take, fuzzer and all: more is a finding.
    """

    module: str
    watched: tuple[str, ...]
    longest: int
    memory: int = 256


@dataclass(frozen=True, slots=True)
class Loaded:
    """A target's functions.

    Attributes:
        seeds: inputs to begin with.
        run: tries one; whatever it raises is a finding.
        mutated: another input, of at most so many bytes and by a number for chance; given also what changes mere bytes.
    """

    seeds: Callable[[], Iterable[bytes]]
    run: Callable[[bytes], None]
    mutated: Callable[[bytes, int, int, Callable[[bytes, int], bytes]], bytes]

    @classmethod
    def of(cls, target: Target) -> Loaded:
        """As its module has them."""
        module: ModuleType = import_module(target.module)
        return cls(module.seeds, module.run, module.mutated)


TARGETS: Final[Mapping[str, Target]] = {
    "decode": Target("tests.fuzz.decoding", ("sfn.formats",), longest=65_536),
    "recognise": Target("tests.fuzz.recognising", ("sfn.gateway",), longest=65_536),
    "targets": Target("tests.fuzz.targeting", ("sfn.gateway", "sfn.http.server"), longest=4_096),
}
PLANTED: Final[Mapping[str, Target]] = {
    "planted": Target("tests.fuzz.planted", ("tests.fuzz.planted",), longest=64),
    "hungry": Target("tests.fuzz.hungry", ("tests.fuzz.hungry",), longest=64, memory=150),
}
"""Those that have something to be found: for the test of the fuzzer itself."""
