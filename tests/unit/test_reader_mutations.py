"""Metadata that somebody broke by hand: each way to read it ends with rows or with a refusal of our own."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import pytest

import sfn
from sfn.catalogs.metadata import UnreadableDocument, read_metadata
from sfn.errors import SfnError
from sfn.reader import verify
from sfn.reader.inspect import MetadataWalk, WalkLimits
from sfn.reader.table import load_metadata, metadata_at_ref
from sfn.sfnfile.document import parse, render
from tests.unit.real_table import IDENTIFIER, RealTable, real_table

Way: TypeAlias = tuple[str | int, ...]

TRIED: Final = 60
"""Mutations in a run of the suite, of some thousands."""
SEED: Final = 20_261_126
DELETED: Final = object()
INSTEAD: Final[tuple[object, ...]] = (
    DELETED,
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**70, 1.5, "", "x", "\x00", [], [None], [[]], {}, {"x": {}}),
)


def as_version_1(metadata: dict[str, Any]) -> dict[str, Any]:
    """The same table as an old writer has it."""
    old = deepcopy(metadata)
    old["format-version"] = 1
    old["schema"], old["partition-spec"] = old["schemas"][-1], old["partition-specs"][-1]["fields"]
    del old["table-uuid"], old["last-sequence-number"]
    for one in old["snapshots"]:
        one.pop("sequence-number")
    return old


def whole(made: RealTable, version: int) -> dict[str, Any]:
    """The current metadata, once all of the table is of a format version."""
    if version == 1:
        file = made.place.sfn_file(IDENTIFIER)
        file.write_bytes(render(replace(parse(file.read_bytes()), guid=None)))
        for file in made.files("metadata.json"):
            file.write_text(json.dumps(as_version_1(json.loads(file.read_bytes()))))
    metadata: dict[str, Any] = json.loads(Path(made.pointer.removeprefix("file://")).read_bytes())
    return metadata


def ways(value: object, way: Way = ()) -> Iterator[Way]:
    """Where each member is; of a list the first and the last."""
    if way:
        yield way
    if isinstance(value, dict):
        for key, one in value.items():
            yield from ways(one, (*way, key))
    if isinstance(value, list):
        for number in dict.fromkeys((0, len(value) - 1)) if value else ():
            yield from ways(value[number], (*way, number))


def mutations(metadata: Mapping[str, Any]) -> list[tuple[Way, Any]]:
    """All places, each with all that may be there instead."""
    return [(way, instead) for way in ways(metadata) for instead in INSTEAD]


def mutated(metadata: dict[str, Any], way: Way, instead: object) -> dict[str, Any]:
    changed = deepcopy(metadata)
    *above, last = way
    at: Any = changed
    for step in above:
        at = at[step]
    if instead is DELETED:
        del at[last]
    else:
        at[last] = instead
    return changed


def readings(made: RealTable) -> Mapping[str, Callable[[], object]]:
    """Every way to read the table, by its name."""
    then = sfn.history(made.directory)[1].at

    def inspected(ref: str) -> object:
        found = sfn.resolve(made.directory, ref=ref)
        whole = load_metadata(found)
        head = metadata_at_ref(whole, ref, found.metadata_location).current_snapshot_id
        return MetadataWalk(found.metadata_location, whole, found.files).metadata(head, WalkLimits(9, files=True))

    def verified() -> object:
        return verify.verify(lambda: sfn.resolve(made.directory), deep=True, on_progress=lambda _done, _total: None)

    refs = ("main", "audit", "v1")
    return {
        **{f"resolve {ref}": partial(sfn.resolve, made.directory, ref=ref) for ref in refs},
        **{f"read {ref}": partial(sfn.read, made.directory, ref=ref) for ref in refs},
        **{f"inspect {ref}": partial(inspected, ref) for ref in refs},
        "history": lambda: [entry.at for entry in sfn.history(made.directory)],
        "resolve then": lambda: sfn.resolve(made.directory, as_of=then),
        "read then": lambda: sfn.read(made.directory, as_of=then),
        "verify": verified,
        "publish": lambda: read_metadata(Path(made.pointer.removeprefix("file://")).read_bytes(), made.pointer),
    }


def broken(made: RealTable, metadata: dict[str, Any], chosen: list[tuple[Way, Any]]) -> list[str]:
    """What raised another error than one of ours."""
    pointer = Path(made.pointer.removeprefix("file://"))
    asked, found = readings(made), []
    for way, instead in chosen:
        pointer.write_text(json.dumps(mutated(metadata, way, instead)))
        for name, ask in asked.items():
            try:
                with suppress(SfnError, UnreadableDocument):
                    ask()
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                said = "deleted" if instead is DELETED else f"{instead!r:.30}"
                found.append(f"{name}: {'/'.join(map(str, way))} is {said}: {type(error).__name__}: {error}"[:300])
    return found


@pytest.mark.parametrize("version", [1, 2])
def test_every_refusal_of_broken_metadata_is_one_of_ours(tmp_path: Path, version: int) -> None:
    made = real_table(tmp_path)
    metadata = whole(made, version)
    for ask in readings(made).values():
        ask()
    chosen = Random(SEED + version).sample(mutations(metadata), TRIED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert broken(made, metadata, chosen) == []
