"""`python -m tests.fuzz.fuzzer TARGET SECONDS RUNS FOLDER`: the fuzzer itself, and what can be fuzzed.

It ends its process as it likes. Nothing of the service is imported here: a target's code is watched from its import on.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOUND: Final = ROOT / "build" / "fuzz"
"""Where the inputs of each target are kept from run to run, and those that broke it."""

_SLOW = 10
"""Seconds that one input may take."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is fuzzed.

    Attributes:
        module: where its functions are.
        name: of its `Loaded` there.
        watched: packages whose lines guide the fuzzer.
        longest: bytes of an input.
        memory: MiB that the process may take, fuzzer and all: more is a finding.
    """

    module: str
    name: str
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
        found = getattr(import_module(target.module), target.name)
        return cls(found.seeds, found.run, found.mutated)


TARGETS: Final[Mapping[str, Target]] = {
    "decode": Target("tests.fuzz.events", "DECODE", ("sfn.formats",), longest=65_536),
    "recognise": Target("tests.fuzz.gateway", "RECOGNISE", ("sfn.gateway",), longest=65_536),
    "targets": Target("tests.fuzz.gateway", "SEND_REQUEST", ("sfn.gateway", "sfn.http.server"), longest=4_096),
}

PLANTED: Final[Mapping[str, Target]] = {
    "planted": Target("tests.fuzz.test_fuzz", "BUG", ("tests.fuzz.test_fuzz",), longest=64),
    "hungry": Target("tests.fuzz.test_fuzz", "LEAK", ("tests.fuzz.test_fuzz",), longest=64, memory=150),
}
"""Those that have something to be found: for the test of the fuzzer itself."""


def main() -> None:
    """Fuzz; the process ends with 0 where nothing was found."""
    import atheris  # noqa: PLC0415 - it is for Linux only, and `python -m tests.fuzz` says so where it is missing

    name, seconds, runs, found = sys.argv[1:]
    target = {**TARGETS, **PLANTED}[name]
    with atheris.instrument_imports(include=list(target.watched)):
        loaded = Loaded.of(target)
    folder = Path(found)
    corpus, given = folder / "corpus", folder / "seeds"
    shutil.rmtree(given, ignore_errors=True)
    for made in (corpus, given):
        made.mkdir(parents=True, exist_ok=True)
    for index, seed in enumerate(loaded.seeds()):
        (given / f"{index:04}").write_bytes(seed)
    options = {
        "max_total_time": seconds,
        "runs": runs,
        "max_len": target.longest,
        "rss_limit_mb": target.memory,
        "timeout": _SLOW,
        "artifact_prefix": f"{folder}/",
        "print_final_stats": 1,
    }

    def mutated(data: bytes, longest: int, number: int) -> bytes:
        return loaded.mutated(data, longest, number, atheris.Mutate)

    arguments = [sys.argv[0], *(f"-{key}={value}" for key, value in options.items()), str(corpus), str(given)]
    atheris.Setup(arguments, loaded.run, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
