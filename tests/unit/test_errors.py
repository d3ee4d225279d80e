"""The drawing of the errors shows them as they are; they go from one process to another whole."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pkgutil import walk_packages

import pytest

import sfn
from sfn import errors
from sfn.errors import ErrorScope, ExternalError, LocationRefused, Rejected, SfnError, UnaddressableTable, Unreachable

BRANCH = 4
"""Columns that a level of the drawing takes."""


def drawn() -> Iterator[tuple[str, str]]:
    """Every error in the drawing, with the one above it."""
    above: list[str] = [SfnError.__name__]
    for margin, name in re.findall(r"^ {4}([ │]*)[├└] (\w+)", errors.__doc__ or "", re.MULTILINE):
        above = [*above[: len(margin) // BRANCH + 1], name]
        yield name, above[-2]


def derived(base: type[SfnError]) -> Iterator[tuple[str, str]]:
    """Every error of the project that more than one module knows, with its base."""
    for error in base.__subclasses__():
        if not error.__name__.startswith("_"):
            yield error.__name__, base.__name__
            yield from derived(error)


def test_the_drawing_shows_every_error_below_its_base() -> None:
    for module in walk_packages(sfn.__path__, "sfn."):
        if module.name != "sfn.__main__":
            import_module(module.name)
    assert sorted(drawn()) == sorted(derived(SfnError))


CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SfnError)]


def made(kind: type[SfnError]) -> SfnError:
    """An error of a class, all of whose attributes say something."""
    make: Callable[..., SfnError] = kind
    if issubclass(kind, Rejected):
        make = partial(make, status=413)
    elif issubclass(kind, ExternalError) and not issubclass(kind, LocationRefused | UnaddressableTable):
        make = partial(make, scope=ErrorScope.CATALOG, retry_after=2.5)
    return make("s3://lake/x", expected="a document", found="none", remedy="look")


def pickled(error: SfnError, protocol: int) -> object:
    return pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own


WAYS: list[Callable[[SfnError], object]] = [
    copy.copy,
    copy.deepcopy,
    *(partial(pickled, protocol=number) for number in range(pickle.HIGHEST_PROTOCOL + 1)),
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_survives_being_sent_to_another_process(kind: type[SfnError]) -> None:
    error = made(kind)
    error.add_note("while reading")
    for way in WAYS:
        again = way(error)
        assert type(again) is kind
        assert again is not error
        assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_an_error_of_a_worker_process_arrives() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(Unreachable, match="fsspec has no driver"):
        pool.submit(sfn.resolve, "nonsense://lake/orders").result(60)
