"""The fuzzer finds what there is to be found, and in the targets nothing; `make fuzz` is longer at it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.fuzzer import ROOT, TARGETS, Loaded

SECONDS = 12
RUNS = 1_000
"""Inputs of each target, its seeds among them. `make fuzz` tries as many as it can in ten minutes."""
LEAKED: list[bytes] = []


def bug_seeds() -> Iterable[bytes]:
    """Nothing that breaks the planted target."""
    return [b"b", b"bu"]


def fail_for_bug(data: bytes) -> None:
    """Raises for what begins with `bug`."""
    if data[:1] == b"b" and data[1:2] == b"u" and data[2:3] == b"g":
        raise LookupError("found it")


def leak_seeds() -> Iterable[bytes]:
    """Something to keep."""
    return [b"x"]


def leak(data: bytes) -> None:
    """Takes a MiB more each time, slowly: the fuzzer looks once a second."""
    time.sleep(0.005)
    LEAKED.append(data[:1].ljust(2**20, b"x"))


def mutated(data: bytes, longest: int, _number: int, otherwise: Callable[[bytes, int], bytes]) -> bytes:
    """The input with its bytes changed."""
    return otherwise(data, longest)


BUG = Loaded(bug_seeds, fail_for_bug, mutated)
LEAK = Loaded(leak_seeds, leak, mutated)
"""Targets that have something to be found: `planted` and `hungry`."""


def fuzzed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Skips the test where the fuzzer is missing; on a build server that is a failure."""
    if find_spec("atheris") is None:
        if os.environ.get("CI") == "true":  # noqa: TID251 - the test run's own surroundings
            pytest.fail("atheris is not installed")
        pytest.skip("no fuzzer: atheris is not installed")
    command = [sys.executable, "-m", "tests.fuzz", "--folder", str(folder), "--seconds", str(SECONDS), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_holds_for_some_inputs_and_what_reached_new_lines_is_kept(tmp_path: Path, target: str) -> None:
    done = fuzzed(tmp_path, "--runs", str(RUNS), target)
    assert done.returncode == 0, done.stderr[-4_000:]
    runs = re.search(r"Done (\d+) runs", done.stderr)
    assert runs is not None
    assert int(runs[1]) > len(list(Loaded.of(TARGETS[target]).seeds()))
    assert any((tmp_path / target / "corpus").iterdir())


def test_what_breaks_a_target_is_found_and_kept(tmp_path: Path) -> None:
    done = fuzzed(tmp_path, "planted")
    assert done.returncode == 1
    assert "LookupError: found it" in done.stdout + done.stderr
    assert done.stderr.endswith(f"planted: something was found, see above and {tmp_path / 'planted'}\n")
    (broken,) = (tmp_path / "planted").glob("crash-*")
    assert broken.read_bytes().startswith(b"bug")


def test_memory_that_grows_is_found(tmp_path: Path) -> None:
    done = fuzzed(tmp_path, "hungry")
    assert done.returncode == 1
    assert "out-of-memory" in done.stderr


def test_a_target_that_there_is_not_is_refused(tmp_path: Path) -> None:
    done = fuzzed(tmp_path, "decoed")
    assert done.returncode == 2
    assert "no target decoed; known are decode, recognise, targets" in done.stderr


def test_without_the_fuzzer_it_says_what_is_missing() -> None:
    alone = [sys.executable, "-S", "-m", "tests.fuzz"]
    done = subprocess.run(alone, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "expected the package atheris, found none" in done.stderr


@pytest.mark.parametrize("target", TARGETS)
def test_each_seed_and_what_becomes_of_it_holds(target: str) -> None:
    loaded, chance = Loaded.of(TARGETS[target]), Random(0)

    def shuffled(data: bytes, longest: int) -> bytes:
        return bytes(chance.sample(data, len(data)))[:longest]

    for number, seed in enumerate(loaded.seeds()):
        loaded.run(seed)
        made = loaded.mutated(seed, TARGETS[target].longest, number, shuffled)
        assert len(made) <= TARGETS[target].longest
        loaded.run(made)
