"""The tree stays within its limits (`make shape` shows all figures), and what is measured is found."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

import pytest

from tests.shape import measures
from tests.shape.measures import is_reference, measured
from tests.shape.wording import private_names, private_prose, prose_of, syntax_tree


def test_every_measure_of_the_tree_fits() -> None:
    assert [(one.name, one.value, one.high, one.examples) for one in measured() if not one.fits] == []


def test_banned_words_and_phrases_are_found_in_prose_also_across_lines() -> None:
    found = [word for _, word in private_prose("Nobody is told\nof it, a table whose files were looked\nat once more.")]
    assert found == ["nobody", "told", "whose", "looked at"]
    assert not list(private_prose("The lookup of a standard term, storytelling aside, and an interface."))


def test_banned_words_are_found_in_every_kind_of_name() -> None:
    source = "class Desk:\n    def tell_all(s, wish): s.kept = [told for told in wish]\nimport os as heir\nHeirTo = 1"
    assert {name for _, name in private_names(source)} == {"Desk", "tell_all", "wish", "kept", "told", "heir", "HeirTo"}


def test_garbage_that_parses_source_when_it_goes_disturbs_nothing() -> None:
    cycle = type("Garbage", (), {"__del__": lambda _: ast.parse("a + b")})()  # noqa: TID251 - this parse is the disturbance
    cycle.itself = cycle
    del cycle
    syntax_tree(Path(ast.__file__).read_text())
    # Otherwise the garbage is collected during the next parse that allows it, in any later test, and that parse fails.
    gc.collect()


def test_comments_docstrings_and_messages_are_prose() -> None:
    source = '"""One."""\nx = 1  # two\nraise ValueError(f"three {x} four")\n'
    assert {text.strip(" #") for _, text in prose_of(source)} == {"One.", "two", "three", "four"}


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [("See `sfn.inbox.JobQueue.claim`.", True), ("As `Files.read`", True), ("See `claim`. Waits a second.", False)],
)
def test_a_docstring_that_only_refers_to_another_is_found(docstring: str, *, expected: bool) -> None:
    assert is_reference(docstring) is expected


def test_links_and_paths_to_missing_files_and_headings_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Who may send?\n\n## Twice\n\n## Twice\n")
    (tmp_path / "README.md").write_text(
        "[1](docs/a.md#who-may-send) [2](docs/a.md#twice-1) [3](docs/b.md) [4](docs/a.md#thrice) [5](#none)\n"
        "```\n[6](nothing.md)\n```\n[7](https://example.org/x)\n"
        "`tests/unit/test_a.py`, `tests/NAME.py`, `docs/a.md`\n"
    )
    assert list(measures.broken_links(tmp_path)) == [
        "README.md: tests/unit/test_a.py",
        "README.md: docs/b.md",
        "README.md: docs/a.md#thrice",
        "README.md: #none",
    ]
