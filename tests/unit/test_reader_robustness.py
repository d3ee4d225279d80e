"""Readers refuse mutated and misleading files."""

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
from typing_extensions import override

import sfn
from sfn.catalogs.metadata import UnreadableDocument, read_metadata
from sfn.errors import (
    Ambiguous,
    MalformedDocument,
    MalformedMetadata,
    NameTaken,
    NotPermitted,
    NotRelative,
    SfnError,
    TooManyFiles,
    Unreachable,
    Unreadable,
)
from sfn.reader import lookup, verify
from sfn.reader.files import FileSystemOptions, LocalFileSystem, directory_url, run_synchronously
from sfn.reader.inspect import MetadataWalk, WalkLimits
from sfn.reader.resolve import Question, resolve_question
from sfn.reader.table import load_metadata, metadata_at_ref
from sfn.sfnfile import document
from sfn.sfnfile.document import CommitEntry, DocumentState, Link, parse, render
from sfn.sfnfile.naming import IDENTIFIER as BY_IDENTIFIER
from sfn.sfnfile.naming import ORDINAL, UUID, FileOwner, Naming
from tests.support.real_table import IDENTIFIER, RealTable, real_table
from tests.support.table_directory import FIRST_ORDINAL, OTHER_UUID, Directory
from tests.support.table_directory import UUID as GUID

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


@pytest.mark.slow
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


MINUTE = 60_000


@pytest.fixture(name="place")
def fixture_place(tmp_path: Path) -> Directory:
    place = Directory(tmp_path / "orders")
    place.metadata()
    return place


class Failing(LocalFileSystem):
    """Files of which one can't be read."""

    def __init__(self, key: str, error: type[Unreadable]) -> None:
        super().__init__()
        self._key, self._error = key, error

    @override
    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        if key == self._key:
            raise self._error(key, expected="to read it", found="trouble")
        return await super().read(key, most, start)


@pytest.mark.parametrize("error", [Unreachable, NotPermitted])
def test_what_could_not_be_read_may_be_the_other_table(place: Directory, error: type[Unreadable]) -> None:
    place.write()
    other = place.write("sales.b", guid=OTHER_UUID)
    url = directory_url(place.path)
    with pytest.raises(Ambiguous):
        sfn.resolve(place.path)
    with pytest.raises(error):
        run_synchronously(resolve_question(Failing(other.as_uri(), error), Question(url), FileSystemOptions(url)))


@pytest.mark.parametrize("ref", ["main", "audit"])
def test_a_name_that_another_table_has_now_is_refused_for_each_branch(place: Directory, ref: str) -> None:
    archive, now = place.link("sales.archive"), place.link("sales.orders")
    place.write("sales.archive")
    place.write("sales.archive", ref="audit", snapshot_id=5)
    place.write(state=DocumentState.RENAMED, moved_to=archive, name_now=now)
    place.write(state=DocumentState.RENAMED, ref="audit", moved_to=archive, name_now=now)
    with pytest.raises(NameTaken, match=r"that it is now sales\.archive, and that another table is sales\.orders"):
        sfn.resolve(place.path, "sales.orders", ref=ref)


def test_of_two_tables_that_are_gone_neither_is_the_one(tmp_path: Path) -> None:
    place = Directory(tmp_path / "orders", naming=ORDINAL)
    place.write(state=DocumentState.DROPPED)
    place.write("sales.b", guid=OTHER_UUID, state=DocumentState.DROPPED, minutes=1)
    with pytest.raises(Ambiguous, match=r"sales\.b, sales\.orders"):
        sfn.history(place.path)
    with pytest.raises(Ambiguous, match=r"sales\.b, sales\.orders"):
        sfn.resolve(place.path, as_of="20200101T000000000")
    assert [entry.state for entry in sfn.history(place.path, "sales.b")] == [DocumentState.DROPPED]


def test_a_tombstone_elsewhere_does_not_hide_that_the_table_itself_cannot_be_read(place: Directory) -> None:
    file = place.raw(b"{")
    Directory(place.path, folder="_sfn").write(state=DocumentState.DROPPED)
    with pytest.raises(MalformedDocument) as refused:
        sfn.resolve(place.path, "sales.orders")
    assert refused.value.where == file.as_uri()


@pytest.mark.parametrize("name", ["a.b", "a/b", "a\\b"])
def test_a_table_is_followed_to_a_file_that_has_escapes_in_its_name(place: Directory, name: str) -> None:
    file = place.folder / BY_IDENTIFIER.file_names(FileOwner(("eu.sales",), name))[0]
    assert "%" in file.name
    file.write_bytes(document.render(replace(place.document(), namespace=("eu.sales",), name=name)))
    place.write(state=DocumentState.RENAMED, moved_to=Link(("eu.sales",), name, f"file://{file}"))
    for table in ("sales.orders", None):
        assert sfn.resolve(place.path, table).document.name == name


def test_who_has_no_uuid_is_followed_by_name_and_catalog_alone(place: Directory) -> None:
    place.metadata(uuid=None)
    place.write(guid=None, state=DocumentState.RENAMED, moved_to=place.link("sales.other"))
    place.write("sales.other", guid=None, catalog_id="f" * 32)
    with pytest.raises(Unreadable, match=r"that sales\.orders left for sales\.other"):
        sfn.resolve(place.path, "sales.orders")
    place.write("sales.other", guid=None)
    assert sfn.resolve(place.path, "sales.orders").document.name == "other"


@pytest.mark.parametrize("body", [b"", b"garbage", b"PAR1", b"[]", b'{"version": 1, "guid": null}'])
@pytest.mark.parametrize("guid", [GUID, None])
@pytest.mark.parametrize("ref", ["main", "audit"])
def test_what_is_no_metadata_is_not_another_tables(place: Directory, body: bytes, guid: str | None, ref: str) -> None:
    place.metadata(body=body)
    place.write(guid=guid)
    with pytest.raises(MalformedMetadata):
        sfn.resolve(place.path, ref=ref)


@pytest.mark.parametrize("spelled", [GUID.upper(), GUID])
def test_a_uuid_is_one_in_upper_and_lower_case(place: Directory, spelled: str) -> None:
    place.metadata(uuid=GUID.upper())
    place.write()
    assert sfn.resolve(place.path, uuid=spelled).document.guid == GUID


class TestRelative:
    """A copy in which nothing is where the files say."""

    @pytest.fixture(name="copy")
    def fixture_copy(self, tmp_path: Path) -> Directory:
        copy = Directory(tmp_path / "copy", naming=ORDINAL)
        logged = [{"metadata-file": "s3://lake/orders/metadata/00000-a.metadata.json", "timestamp-ms": FIRST_ORDINAL}]
        copy.metadata("00000-a.metadata.json")
        copy.metadata("00008-a.metadata.json")
        copy.metadata("00009-a.metadata.json", metadata_log=logged, last_updated_ms=FIRST_ORDINAL + 9 * MINUTE)
        return copy

    def head(self, copy: Directory, between: tuple[CommitEntry, ...]) -> None:
        copy.write(
            metadata_file_path="s3://lake/orders/metadata/00009-a.metadata.json",
            metadata_file_relative="../00009-a.metadata.json",
            ordinal=FIRST_ORDINAL + 9 * MINUTE,
            between=between,
        )

    @pytest.mark.parametrize("naming", [ORDINAL, UUID])
    def test_what_was_current_then_is_beside_what_is_now(self, copy: Directory, naming: Naming) -> None:
        earlier, minutes = ("00008", 8) if naming is ORDINAL else ("00000", 0)
        if naming is UUID:
            copy = Directory(copy.path, naming=UUID)
        path = f"s3://lake/orders/metadata/{earlier}-a.metadata.json"
        between = (CommitEntry(FIRST_ORDINAL + minutes * MINUTE, path),) if naming is ORDINAL else ()
        self.head(copy, between=between)
        as_of = "20231114T222130000"
        found = sfn.resolve(copy.path, as_of=as_of, relative=True)
        assert found.metadata_location == (copy.path / "metadata" / f"{earlier}-a.metadata.json").as_uri()
        assert sfn.history(copy.path, relative=True)[-2].metadata_location == path

    def test_what_was_in_another_folder_is_not_known_there(self, copy: Directory) -> None:
        elsewhere = CommitEntry(FIRST_ORDINAL, "s3://lake/before/metadata/00000-a.metadata.json")
        self.head(copy, between=(elsewhere,))
        with pytest.raises(NotRelative):
            sfn.resolve(copy.path, as_of="20231114T222130000", relative=True)


def test_the_history_of_a_table_whose_former_name_was_long_is_whole(tmp_path: Path) -> None:
    place = Directory(tmp_path / "orders", naming=ORDINAL)
    before = f"sales.{'x' * 182}"
    place.commit(1, before)
    place.renamed(before, "sales.orders", minutes=2)
    place.commit(3)
    place.write(minutes=3, ordinal=FIRST_ORDINAL + 3 * MINUTE)
    assert place.sfn_file(before).name.startswith("sales_xxxx")
    assert [len(sfn.history(place.path, table)) for table in (before, "sales.orders")] == [2, 1]


def test_a_folder_of_files_that_lead_from_one_to_another_is_given_up(
    place: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "MAX_OPENED", 6)
    for number in range(4):
        place.renamed(f"sales.t{number}", f"sales.t{number + 1}", guid=OTHER_UUID)
    with pytest.raises(TooManyFiles, match="at most 6 linked documents"):
        sfn.resolve(place.path)
