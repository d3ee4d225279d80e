"""What a reader may rely on, whatever its files lie on. None of it needs an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sfn.reader.files import run_synchronously
from tests.promises.files import ADAPTERS, Ground

T = TypeVar("T")


@pytest.fixture(name="ground", params=list(ADAPTERS))
def fixture_ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return ADAPTERS[request.param](tmp_path)


def now(work: Coroutine[Any, Any, T]) -> T:
    return run_synchronously(work)


def test_missing_file_is_not_an_error(ground: Ground) -> None:
    assert now(ground.files.read(ground.key, 10)) is None
    assert now(ground.files.list(ground.folder, 10)) == []
    assert now(ground.files.size(ground.key)) is None
    assert not now(ground.files.is_folder(ground.folder.rstrip("/")))


def test_file_is_read_from_any_offset(ground: Ground) -> None:
    ground.plant(ground.key, b"0123456789")
    assert now(ground.files.read(ground.key, 100)) == b"0123456789"
    assert now(ground.files.read(ground.key, 10)) == b"0123456789"
    assert now(ground.files.read(ground.key, 3)) == b"012"
    assert now(ground.files.read(ground.key, 3, 4)) == b"456"
    assert now(ground.files.read(ground.key, 100, 7)) == b"789"
    assert now(ground.files.read(ground.key, 100, 10)) == b""
    assert now(ground.files.read(ground.key, 100, 99)) == b""
    assert now(ground.files.size(ground.key)) == 10


def test_empty_file_exists(ground: Ground) -> None:
    ground.plant(ground.key, b"")
    assert now(ground.files.read(ground.key, 10)) == b""
    assert now(ground.files.size(ground.key)) == 0
    assert now(ground.files.list(ground.folder, 10)) == [ground.key]


def test_folder_is_not_a_file(ground: Ground) -> None:
    ground.plant(ground.key, b"1")
    folder = ground.folder.rstrip("/")
    assert now(ground.files.size(folder)) is None
    assert now(ground.files.is_folder(folder))
    assert not now(ground.files.is_folder(ground.key))


def test_listing_is_sorted_and_limited(ground: Ground) -> None:
    names = ["b.ver", "a_b.ver", "B.ver", "a%5Fb.ver", "a.ver", "ä.ver"]
    for name in names:
        ground.plant(ground.folder + name, b"")
    expected = sorted(ground.folder + name for name in names)
    assert now(ground.files.list(ground.folder, 100)) == expected
    assert now(ground.files.list(ground.folder, 2)) == expected[:2]


def test_listing_covers_one_folder_only(ground: Ground) -> None:
    metadata = ground.folder.removesuffix("_sfn/")
    for key in (ground.key, f"{metadata}version-hint.text", f"{metadata}_sfn_other.ver", f"{ground.folder}deep/x.ver"):
        ground.plant(key, b"1")
    files = [key for key in now(ground.files.list(ground.folder, 10)) if key.endswith(".ver")]
    assert files == [ground.key]


def test_listing_is_not_cached(ground: Ground) -> None:
    ground.plant(ground.key, b"1")
    now(ground.files.list(ground.folder, 10))
    ground.plant(f"{ground.folder}a.ver", b"1")
    assert now(ground.files.list(ground.folder, 10)) == [f"{ground.folder}a.ver", ground.key]


@pytest.mark.parametrize(
    "name", ["a_b", "a%5Fb", "%2E%2e%2F", "sp ace", "größe_表_🧊", "a" * 100 + "~" + "b" * 99, "~", "%"]
)
def test_special_characters_in_keys_are_preserved(ground: Ground, name: str) -> None:
    key = f"{ground.folder}{name}.ver"
    ground.plant(key, name.encode())
    assert now(ground.files.read(key, 1_000)) == name.encode()
    assert now(ground.files.list(ground.folder, 10)) == [key]
