"""`python -m tests.fuzz.fuzzing TARGET SECONDS FOLDER`: the fuzzer itself, which ends its process as it likes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import atheris

from tests.fuzz.targets import PLANTED, TARGETS, Loaded

_SLOW = 10
"""Seconds that one input may take."""


def main() -> None:
    """Fuzz; the process ends with 0 where nothing was found."""
    name, seconds, found = sys.argv[1:]
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
