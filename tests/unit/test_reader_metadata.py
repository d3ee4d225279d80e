"""Metadata files in the reader: table UUID and refs."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import sfn
from sfn.catalogs.metadata import read_metadata
from sfn.cli.main import app
from sfn.errors import MalformedMetadata, RefNotFound, Unreadable, WrongTable
from sfn.reader import verify
from sfn.reader.files import FIRST_READ_SIZE, PART_SIZE, run_synchronously
from sfn.reader.metadata import MAX_SCAN_STEPS, MAX_SCANNED_SIZE, head_of, read_table_uuid
from sfn.sfnfile.document import parse, render
from tests.support.real_table import IDENTIFIER, RealTable
from tests.support.table_directory import UUID

KEY = "table-uuid"


class Bytes:
    """One file."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        return self._body[start : start + most]

    async def list(self, prefix: str, limit: int) -> list[str]:
        return []


def found(body: bytes, most: int = MAX_SCANNED_SIZE) -> str | None:
    return run_synchronously(read_table_uuid(Bytes(body), "k", body[:FIRST_READ_SIZE], most))


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
values = st.recursive(
    scalars | st.just(KEY),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just(KEY), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=4) | st.just(KEY), values, max_size=6)


@given(objects, st.booleans(), st.booleans())
def test_it_is_what_a_json_parser_finds(content: dict[str, object], escaped: bool, compressed: bool) -> None:
    body = json.dumps(content, ensure_ascii=escaped, indent=1 if escaped else None).encode()
    expected = content.get(KEY)
    assert found(gzip.compress(body) if compressed else body) == (expected if isinstance(expected, str) else None)


@pytest.mark.parametrize("before", range(FIRST_READ_SIZE - 60, FIRST_READ_SIZE + 2))
def test_it_may_lie_across_two_parts(before: int) -> None:
    start = b'{"' + b"a" * (before - 20) + b'": "\\"\\\\", '
    assert found(b'%b"table\\u002duuid" : "%b"}' % (start, UUID.encode())) == UUID


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not JSON",
        b'["table-uuid", "x"]',
        b'"table-uuid": "x"',
        b'{"a": {"table-uuid": "x"}}',
        b'{"table-uuid": ["x"]}',
        b'{"table-uuid": null, "a": "x"}',
        b'{"table-uuid',
        b'{"table-uuid": "\xff"}',
        b'{"table-uuid": "\xed\xa0\x80"}',
        '{"table-uuid": "x"}'.encode("utf-16-le"),
        b'{}{"table-uuid": "x"}',
        b"\x1f\x8bnot gzip",
        b"\x1f\x8b",
        gzip.compress(b'{"table-uuid": "x"}', mtime=0)[:10],
    ],
)
def test_what_has_none_has_none(body: bytes) -> None:
    assert found(body) is None


@pytest.mark.parametrize("key", [b"\\q", b"\xff", b"\\ud800"])
def test_a_broken_string_before_it_hides_nothing(key: bytes) -> None:
    assert found(b'{"%b": "%b", "table-uuid": "x"}' % (key, key)) == "x"


def test_a_string_inside_another_value_is_not_it_however_long() -> None:
    text = b"a" * PART_SIZE
    assert found(b'{"table-uuid": ["%b", "x"]}' % text) is None
    assert found(b'{"a": {"%b": 1, "table-uuid": "x"}, "table-uuid": "y"}' % text) == "y"
    assert found(b'{"a": {"%b": {"table-uuid": "x"}}}' % text) is None


@pytest.mark.parametrize("compress", [gzip.compress, bytes])
def test_a_file_without_end_is_given_up(compress: Callable[[bytes], bytes]) -> None:
    body = compress(b"{%b" % (b" " * (4 * PART_SIZE)) + b'"table-uuid": "x"}')
    assert found(body) == "x"
    with pytest.raises(MalformedMetadata, match="a table-uuid in the first 2 MiB of JSON"):
        found(body, most=2 * PART_SIZE)


FORGED = {"depth": b"[" * 64, "keys": b'"":0,' * 16, "arrays": b"[[[]]]," * 16}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_file_of_nothing_but_signs_is_given_up_and_not_taken_for_another_tables(
    monkeypatch: pytest.MonkeyPatch, forged: bytes
) -> None:
    monkeypatch.setattr("sfn.reader.metadata.MAX_SCAN_STEPS", 100_000)
    body = gzip.compress(b'{"a": [' * (forged[:1] == b"[") + b"{" * (forged[:1] == b'"') + forged * (PART_SIZE // 16))
    with pytest.raises(MalformedMetadata, match="within 100,000 signs"):
        found(body)


LARGE = {
    "snapshots": b'{"snapshot-id": 1, "timestamp-ms": 2, "summary": {"operation": "append"}, "manifest-list": "m"},',
    "log": b'{"timestamp-ms": 1, "metadata-file": "s3://lake/orders/metadata/1.metadata.json"},',
    "schemas": b'{"schema-id": 1, "fields": [%b{}]},' % (b'{"id": 1, "name": "a", "type": "int"},' * 50),
    "text": b'"%b",' % (b'\\"ab' * (2 * PART_SIZE)),
}


@pytest.mark.parametrize("repeated", LARGE.values(), ids=LARGE)
def test_real_metadata_takes_few_steps(monkeypatch: pytest.MonkeyPatch, repeated: bytes) -> None:
    """So few, that 256 MiB take fewer than there may be."""
    monkeypatch.setattr("sfn.reader.metadata.MAX_SCAN_STEPS", MAX_SCAN_STEPS // 32)
    assert found(b'{"a": [%b{}], "table-uuid": "x"}' % (repeated * (8 * PART_SIZE // len(repeated)))) == "x"


def parts(size: int) -> Iterator[bytes]:
    yield b'{"snapshots": ['
    for number in range(size >> 9):
        yield b'{"snapshot-id": %d, "summary": {"text": "%b"}},' % (number, b"s" * 470)
    yield b'{}], "table-uuid": "%b"}' % UUID.encode()


@pytest.mark.slow
def test_a_large_file_takes_little_memory_also_when_it_inflates() -> None:
    """The uuid is at the very end."""
    compressed = gzip.compress(b"".join(parts(24 << 20)), compresslevel=1)
    tracemalloc.start()
    try:
        assert found(compressed) == UUID
        assert tracemalloc.get_traced_memory()[1] < 12 * PART_SIZE
    finally:
        tracemalloc.stop()


def test_a_string_without_end_takes_little_memory() -> None:
    body = b'{"' + b"a" * (40 << 20)
    tracemalloc.start()
    try:
        assert found(body) is None
        assert tracemalloc.get_traced_memory()[1] < 8 * PART_SIZE
    finally:
        tracemalloc.stop()


Change = Callable[[dict[str, Any]], object]


def changed(made: RealTable, change: Change) -> str:
    """Change the metadata file by hand; the table's directory."""
    pointer = Path(made.pointer.removeprefix("file://"))
    metadata = json.loads(pointer.read_text())
    change(metadata)
    pointer.write_text(json.dumps(metadata))
    return made.directory


def of_version(doc: dict[str, Any], version: int, change: Change) -> None:
    """Change metadata, and let it have what a format version has beside the others."""
    change(doc)
    doc["format-version"] = version
    if version == 1:
        doc |= {"schema": doc["schemas"][-1], "partition-spec": doc["partition-specs"][-1]["fields"]}


def wrong(directory: str, ref: str = "main", *, deep: bool = False) -> list[tuple[str, str]]:
    resolving = lambda: sfn.resolve(directory, ref=ref)  # noqa: E731 - as a command has it
    _, findings = verify.verify(resolving, deep=deep, on_progress=lambda _done, _total: None)
    return [(one.what, one.text) for one in findings if not one.ok]


def icebergs_own(current: int | None, refs: Mapping[str, int], snapshots: set[int]) -> int | None:
    """The current snapshot as of Iceberg's `TableMetadata`: it refuses what contradicts itself anywhere.

    Raises:
        ValueError: it does.
    """
    current = -1 if current is None else current
    refs = refs or ({} if current == -1 else {"main": current})
    if not snapshots >= set(refs.values()):
        raise ValueError("Snapshot for reference does not exist in the existing snapshots list")
    if refs.get("main", current) != current:
        raise ValueError("Current snapshot ID does not match main branch")
    return None if current == -1 else current


ids = st.integers(-1, 3)


@given(
    current=st.none() | ids,
    refs=st.dictionaries(st.sampled_from(["main", "b"]), ids, max_size=2),
    snapshots=st.sets(st.integers(1, 3)),
)
def test_main_is_where_icebergs_own_library_has_it(
    current: int | None, refs: dict[str, int], snapshots: set[int]
) -> None:
    # Another branch without its snapshot keeps that library from all of the table, and us from that branch.
    here = {name: number for name, number in refs.items() if name == "main"}
    try:
        expected: int | str | None = icebergs_own(current, here, snapshots)
    except ValueError:
        expected = "refused"
    try:
        found: int | str | None = head_of("main", current, refs, snapshots, "file")
    except MalformedMetadata:
        found = "refused"
    assert found == expected


@pytest.mark.parametrize(
    ("current", "refs", "head"),
    [
        *((1, {}, 1), (1, {"main": 1}, 1), (1, {"b": 2}, 1)),
        *((None, {}, None), (-1, {}, None), (None, {"b": 1}, None), (-1, {"b": 1}, None)),
    ],
)
def test_where_main_is(current: int | None, refs: dict[str, int], head: int | None) -> None:
    assert head_of("main", current, refs, [1, 2], "file") == head


@pytest.mark.parametrize(
    ("current", "refs"),
    [(0, {}), (3, {}), (3, {"main": 3}), (1, {"main": 2}), (None, {"main": 1}), (-1, {"main": 1}), (-1, {"main": -1})],
)
def test_where_main_can_not_be(current: int | None, refs: dict[str, int]) -> None:
    with pytest.raises(MalformedMetadata, match=r"file: expected .*main"):
        head_of("main", current, refs, [1, 2], "file")


def test_a_branch_is_found_whatever_is_wrong_with_main() -> None:
    assert head_of("b", 7, {"b": 2, "main": 9}, [1, 2], "file") == 2
    with pytest.raises(MalformedMetadata, match=r"the snapshot 3 of b \(`refs.b`\) in `snapshots`, found none among 2"):
        head_of("b", 1, {"b": 3}, [1, 2], "file")
    with pytest.raises(RefNotFound):
        head_of("c", 1, {"b": 3}, [1, 2], "file")


CONTRADICTIONS: dict[str, Change] = {
    "current is not main": lambda doc: doc.update({"current-snapshot-id": doc["snapshots"][0]["snapshot-id"]}),
    "main alone": lambda doc: doc.pop("current-snapshot-id"),
    "none is main": lambda doc: doc.update({"current-snapshot-id": -1}),
    "no such snapshot": lambda doc: (
        doc.update({"current-snapshot-id": 42}),
        doc["refs"]["main"].update({"snapshot-id": 42}),
    ),
    "no refs, no such snapshot": lambda doc: (doc.update({"current-snapshot-id": 42}), doc.pop("refs")),
    "no snapshots": lambda doc: doc.update({"snapshots": []}),
    "zero": lambda doc: (doc.update({"current-snapshot-id": 0}), doc.pop("refs")),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
@pytest.mark.parametrize("version", [1, 2])
def test_a_table_without_a_certain_head_is_refused_and_named(made: RealTable, case: str, version: int) -> None:
    directory = changed(made, lambda doc: of_version(doc, version, CONTRADICTIONS[case]))
    found = sfn.resolve(directory)
    for ask in (lambda: sfn.read(directory), found.table):
        with pytest.raises(MalformedMetadata, match=f"{Path(made.pointer).name}: expected .*main"):
            ask()
    assert wrong(directory, deep=True)[0][0] == "ref"
    assert len(sfn.history(directory)) > 1
    for arguments in (["inspect"], ["verify"]) if version == 1 else ():
        done = CliRunner().invoke(app, [*arguments, directory])
        assert (done.exit_code, "main" in done.output) == (1, True)


@pytest.mark.parametrize("case", [*CONTRADICTIONS, "none"])
def test_what_the_service_publishes_as_snapshot_is_what_a_reader_shows(made: RealTable, case: str) -> None:
    directory = changed(made, CONTRADICTIONS.get(case, lambda _doc: None))
    pointer = Path(made.pointer.removeprefix("file://"))
    published = read_metadata(pointer.read_bytes(), made.pointer).snapshot_id
    try:
        shown = sfn.resolve(directory).table().current_snapshot()
    except Unreadable:
        return
    assert shown is not None
    assert published == shown.snapshot_id


def test_what_the_service_names_as_snapshot_is_none_where_no_reader_shows_one(made: RealTable) -> None:
    changed(made, CONTRADICTIONS["current is not main"])
    published = read_metadata(Path(made.pointer.removeprefix("file://")).read_bytes(), made.pointer).snapshot_id
    assert published is None


@pytest.mark.parametrize("ref", ["audit", "v1"])
def test_a_branch_or_tag_without_its_snapshot_is_named(made: RealTable, ref: str) -> None:
    directory = changed(made, lambda doc: doc["refs"][ref].update({"snapshot-id": 42}))
    for ask in (sfn.resolve, sfn.read):
        with pytest.raises(MalformedMetadata, match=f"the snapshot 42 of {ref}"):
            ask(directory, ref=ref)
    assert sfn.read(directory).num_rows == 2
    # It is wrong all the same.
    ((what, text),) = wrong(directory)
    assert (what, f"the snapshot 42 of {ref}" in text) == ("ref", True)


def test_a_published_branch_without_its_snapshot_is_refused(made: RealTable) -> None:
    found = sfn.resolve(made.directory)
    doc = found.document
    made.place.sfn_file(IDENTIFIER, ref="audit").write_bytes(
        render(parse(render(doc)).__class__(**{**_members(doc), "ref": "audit", "snapshot_id": 42}))
    )
    changed(made, lambda doc: doc["refs"]["audit"].update({"snapshot-id": 42}))
    with pytest.raises(MalformedMetadata, match="the snapshot 42 of audit"):
        sfn.read(made.directory, ref="audit")
    assert wrong(made.directory, "audit")[0][0] == "ref"


def _members(doc: Any) -> dict[str, Any]:  # noqa: ANN401 - a document
    return {name: getattr(doc, name) for name in doc.__slots__}


def test_a_schema_that_is_missing_is_named(made: RealTable) -> None:
    directory = changed(made, lambda doc: [one.update({"schema-id": 99}) for one in doc["snapshots"]])
    for ask in (lambda: sfn.read(directory, ref="v1"), lambda: sfn.resolve(directory, ref="v1").table()):
        with pytest.raises(MalformedMetadata, match=r"the schema 99 \(`schema-id` of the snapshot \d+\) in `schemas`"):
            ask()
    assert sfn.read(directory).num_rows == 2
    assert sfn.read(directory, ref="audit").num_rows == 2


UUIDS = {
    "without hyphens": lambda uuid: uuid.replace("-", ""),
    "in capitals": str.upper,
    "in braces": "{{{}}}".format,
    "as a URN": "urn:uuid:{}".format,
}


@pytest.mark.parametrize("in_file", UUIDS)
@pytest.mark.parametrize("in_document", [None, "without hyphens", "as a URN"])
def test_a_uuid_is_the_same_in_every_spelling(made: RealTable, in_file: str, in_document: str | None) -> None:
    uuid = sfn.resolve(made.directory).document.guid
    assert uuid is not None
    changed(made, lambda doc: doc.update({"table-uuid": UUIDS[in_file](uuid)}))
    file = made.place.sfn_file(IDENTIFIER)
    if in_document is not None:
        file.write_bytes(file.read_bytes().replace(uuid.encode(), UUIDS[in_document](uuid).encode()))
    assert sfn.read(made.directory).num_rows == 2
    assert sfn.read(made.directory, ref="v1").num_rows == 1
    assert sfn.resolve(made.directory, uuid=UUIDS[in_file](uuid)).document.guid == uuid
    assert wrong(made.directory, deep=True) == []


@pytest.mark.parametrize("uuid", [None, "t-1", ""])
def test_a_table_whose_uuid_is_none_is_read(made: RealTable, uuid: str | None) -> None:
    changed(made, lambda doc: of_version(doc, 1, lambda doc: doc.update({"table-uuid": uuid})))
    file = made.place.sfn_file(IDENTIFIER)
    before = json.loads(file.read_bytes())
    with pytest.raises(WrongTable):
        sfn.resolve(made.directory)
    file.write_text(json.dumps(before | {"guid": uuid}))
    assert sfn.read(made.directory).num_rows == 2
    assert wrong(made.directory, deep=True) == []


def test_another_uuid_is_another_table(made: RealTable) -> None:
    changed(made, lambda doc: doc.update({"table-uuid": "00000000000000000000000000000001"}))
    for ask in (sfn.resolve, sfn.read):
        with pytest.raises(WrongTable):
            ask(made.directory)


@pytest.mark.parametrize("factor", [1_000, -1])
@pytest.mark.parametrize("log", ["metadata-log", "snapshot-log", "snapshots"])
def test_times_that_can_be_none_matter_only_to_who_asks_for_a_time(made: RealTable, log: str, factor: int) -> None:
    then = sfn.history(made.directory)[2]

    def multiply(doc: dict[str, Any]) -> None:
        for one in doc[log]:
            one["timestamp-ms"] *= factor

    directory = changed(made, multiply)
    assert sfn.read(directory).num_rows == 2
    assert sfn.read(directory, ref="v1").num_rows == 1
    assert wrong(directory, deep=True) == []
    assert all(entry.at.year for entry in sfn.history(directory))
    for arguments in (["inspect"], ["history"], ["resolve"], ["verify"]):
        assert CliRunner().invoke(app, [*arguments, directory]).exit_code == 0
    if log == "metadata-log":
        with pytest.raises(sfn.CommitNotFound, match="times in the metadata-log that are milliseconds"):
            sfn.resolve(directory, as_of=then)
