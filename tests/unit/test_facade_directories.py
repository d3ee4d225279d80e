"""Tables that are called by their directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.errors import Unsafe
from sfn.facade.metadata_files import open_tree
from sfn.facade.tables import MAX_DIRECTORY_NAME, is_directory, place_of_directory
from sfn.reader.resolve import Question

TREES = {root: open_tree(root, {}) for root in ("file:///w", "file:///w/inner", "memory://m/w")}


@pytest.mark.parametrize(
    ("name", "url", "root"),
    [
        ("/w/a", "file:///w/a", "file:///w"),
        ("/w/a/", "file:///w/a", "file:///w"),
        ("/w", "file:///w", "file:///w"),
        ("file:/w/a", "file:///w/a", "file:///w"),
        ("file:///w/inner/a", "file:///w/inner/a", "file:///w/inner"),
        ("/w/inner", "file:///w/inner", "file:///w/inner"),
        ("/w/a b%20c", "file:///w/a b%20c", "file:///w"),
        ("memory://m/w/a", "memory://m/w/a", "memory://m/w"),
    ],
)
def test_a_directory_below_a_root_is_looked_up_there(name: str, url: str, root: str) -> None:
    found = place_of_directory(name, TREES)
    assert found.question == Question(url, None, allowed=(root,))
    assert found.tree is TREES[root]


@pytest.mark.parametrize(
    "name",
    [
        "/",
        "//w/a",
        "/w/../etc",
        "/w/a/../../etc",
        "/w/./a",
        "/w//a",
        "/wide",
        "/etc/passwd",
        "/w/%2e%2e/etc",
        "/w/a%2F..%2Fetc",
        "/w/a%5Cb",
        "/w/a\\b",
        "/w/a\0b",
        "/w/a\nb",
        "/w/a?b",
        "file://host/w/a",
        "s3://w/a",
        "memory://other/w/a",
        "memory://user@m/w/a",
        "simplecache::file:///w/a",
        "local:///w/a",
        "http://127.0.0.1/w/a",
        "/w/a#..",
        "/w/" + "a" * MAX_DIRECTORY_NAME,
    ],
)
def test_every_other_name_is_refused(name: str) -> None:
    with pytest.raises(Unsafe):
        place_of_directory(name, TREES)


def test_of_a_shared_directory_the_table_is_named_behind_a_sign() -> None:
    assert place_of_directory("/w/a#sales.orders", TREES).question.table == ("sales", "orders")
    assert place_of_directory("/w/a#orders", TREES).question.table == ("orders",)
    assert place_of_directory("/w/a#b#c", TREES).question.table == ("b#c",)
    assert place_of_directory("/w/a#", TREES).question.table is None


def test_what_is_a_directory(tmp_path: Path) -> None:
    assert is_directory(("dir",), str(tmp_path))
    assert is_directory(("dir",), "s3://bucket/a")
    assert not is_directory(("dir",), "orders")
    assert not is_directory(("other",), "/w")
    assert not is_directory(("dir", "/w"), "/w")
