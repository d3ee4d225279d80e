"""Locations: canonical form, spelling and limits."""

from __future__ import annotations

import gzip
import os
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.errors import ErrorScope, LocationRefused
from sfn.sfnfile.locations import canonical, check_location, decompress, is_below, longest_prefix, store_prefix

PART = 1 << 20
SMALL = gzip.compress(b'{"a": [1]')
HEADER = SMALL[:10]
NAMED = HEADER[:3] + b"\x08" + HEADER[4:]


class Parts:
    """A file, part by part.

    Attributes:
        read: parts that were asked for.
    """

    def __init__(self, begun: bytes, then: bytes, times: int) -> None:
        self.read = 0
        self._begun, self._then, self._times = begun, then, times

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in (self._begun, *[self._then] * self._times):
            self.read += 1
            yield part


async def body_of(parts: Parts) -> bytes:
    return b"".join([part async for part in decompress(aiter(parts), PART)])


@pytest.mark.parametrize("more", [bytes(PART), SMALL * (PART // len(SMALL))], ids=["zeros", "members"])
async def test_what_follows_the_end_is_not_read(more: bytes) -> None:
    parts = Parts(SMALL + more, more, 64)
    tracemalloc.start()
    try:
        assert await body_of(parts) == gzip.decompress(SMALL)
        assert tracemalloc.get_traced_memory()[1] < 4 * PART
    finally:
        tracemalloc.stop()
    assert parts.read == 1


@pytest.mark.parametrize(
    ("begun", "more"),
    [(HEADER, b"\0\0\0\xff\xff" * (PART // 5)), (NAMED, b"x" * PART)],
    ids=["empty blocks", "a name without end"],
)
async def test_a_file_that_makes_nothing_of_much_is_broken(begun: bytes, more: bytes) -> None:
    parts = Parts(begun, more, 64)
    with pytest.raises(zlib.error, match="more compressed than not"):
        await body_of(parts)
    assert parts.read < 4


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 1, 9])
async def test_what_nothing_can_compress_is_read_all_the_same(level: int) -> None:
    """It takes more bytes compressed than not."""
    body = os.urandom(24 * PART)
    file = gzip.compress(body, level)
    assert len(file) > len(body)
    packed = [file[at : at + PART] for at in range(0, len(file), PART)]

    async def parts() -> AsyncIterator[bytes]:
        for part in packed:
            yield part

    assert b"".join([part async for part in decompress(parts(), PART)]) == body


FAMILIES = {
    "file": ("file",),
    "s3": ("s3", "s3a", "s3n"),
    "gs": ("gs", "gcs"),
    "abfss": ("abfs", "abfss", "wasb", "wasbs"),
}
FORBIDDEN = "\\?#\x7f\ud800\udfff" + "".join(map(chr, range(0x20)))


@dataclass(frozen=True, slots=True)
class Place:
    """A place on a store, whatever it is called.

    Attributes:
        family: the first of the schemes that mean the same.
        authority: bucket or container, none for files.
        segments: of its path.
    """

    family: str
    authority: str
    segments: tuple[str, ...]

    @property
    def path(self) -> str:
        return "".join(f"/{segment}" for segment in self.segments)

    @property
    def canonical(self) -> str:
        return f"{self.family}://{self.authority}{self.path}"

    def spelled(self, draw: st.DataObject) -> str:
        """One of the spellings that mean this place."""
        scheme = draw.draw(st.sampled_from(FAMILIES[self.family]))
        starts = [f"{scheme}://{self.authority}", f"{scheme.upper()}://{self.authority}"]
        if self.family == "file":
            starts += ["file:", "FILE:", "", "file://localhost"]
        if self.family == "abfss":
            container, _, host = self.authority.partition("@")
            hosts = [host, host.upper(), host.replace(".dfs.", ".blob."), host.replace(".dfs.", ".Blob.")]
            starts += [f"{scheme}://{container}@{one}" for one in hosts]
        return draw.draw(st.sampled_from(starts)) + self.path + "/" * draw.draw(st.integers(0, 2))


def is_plain(segment: str) -> bool:
    return segment not in {".", ".."} and not any(code in segment.lower() for code in ("%2e", "%2f", "%5c", "%00"))


# Half a character is one of those that are refused, and they are more than can be named.
segments = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=f"/{FORBIDDEN}"), min_size=1, max_size=6
).filter(is_plain)
paths = st.lists(segments, min_size=1, max_size=4).map(tuple)
buckets = st.from_regex(r"[a-z0-9][a-z0-9.-]{1,8}", fullmatch=True)
# An account may be called as the service is.
accounts = st.from_regex(r"[a-z0-9]{3,8}", fullmatch=True) | st.just("blob")
containers = st.builds("{}@{}.dfs.core.windows.net".format, buckets, accounts)
places = (
    st.builds(Place, st.just("file"), st.just(""), paths)
    | st.builds(Place, st.sampled_from(["s3", "gs"]), buckets, paths)
    | st.builds(Place, st.just("abfss"), containers, paths)
)
nonsense = st.text(max_size=12) | st.text("/:.%2eEfF\\?#@s3a\n ~", max_size=12)


@given(places, st.data())
def test_all_spellings_of_a_place_are_one(place: Place, data: st.DataObject) -> None:
    spelled = place.spelled(data)
    assert canonical(spelled) == place.canonical
    assert check_location(spelled) == place.canonical


@given(places, places, st.data())
def test_two_places_stay_two(place: Place, other: Place, data: st.DataObject) -> None:
    assert (canonical(place.spelled(data)) == canonical(other.spelled(data))) == (place == other)


@given(nonsense | st.builds("{}:{}{}".format, st.sampled_from(["s3", "file", "C", "x+y"]), st.just("//"), nonsense))
def test_a_canonical_spelling_stays_as_it_is(text: str) -> None:
    assert canonical(canonical(text)) == canonical(text)


@given(nonsense | st.builds("{}{}".format, st.sampled_from(["s3://b/", "file:/", "/"]), nonsense))
def test_what_is_not_refused_is_fit_to_be_written_to(text: str) -> None:
    try:
        place = check_location(text)
    except LocationRefused:
        return
    assert place == canonical(text) == check_location(place)
    scheme, _, authority, *path = place.split("/")
    assert scheme.removesuffix(":") in FAMILIES
    assert (authority == "") == (scheme == "file:")
    assert all(segment and is_plain(segment) for segment in path)
    assert not set(place) & set(FORBIDDEN)


def test_an_account_that_is_called_as_its_service_keeps_its_name() -> None:
    assert canonical("wasbs://c@blob.blob.core.windows.net/t") == "abfss://c@blob.dfs.core.windows.net/t"
    assert canonical("abfss://c@dfs.z7.blob.storage.azure.net/t") == "abfss://c@dfs.z7.dfs.storage.azure.net/t"


def test_a_bucket_is_taken_as_it_is_written() -> None:
    """Only hosts have no case."""
    assert canonical("s3a://Lake/t") == "s3://Lake/t"
    assert canonical("gcs://Lake/t") == "gs://Lake/t"


def test_a_path_with_two_slashes_is_a_path_and_no_host() -> None:
    assert canonical("//warehouse/orders") == canonical("file:////warehouse/orders") != "file://warehouse/orders"


@given(places, st.data())
def test_no_segment_leads_out_of_its_folder(place: Place, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(place.segments)))
    bad = data.draw(st.sampled_from([".", "..", "%2e%2E", "%2e", "a%2Fb", "a%5cb", "a%00b"]))
    segments = (*place.segments[:at], bad, *place.segments[at:])
    spelled = Place(place.family, place.authority, segments).spelled(data)
    with pytest.raises(LocationRefused):
        check_location(spelled)


@given(places, st.data(), st.sampled_from(FORBIDDEN))
def test_no_ambiguous_character_is_accepted(place: Place, data: st.DataObject, bad: str) -> None:
    at = data.draw(st.integers(0, len(place.segments) - 1))
    segments = list(place.segments)
    where = data.draw(st.integers(0, len(segments[at])))
    segments[at] = segments[at][:where] + bad + segments[at][where:]
    with pytest.raises(LocationRefused):
        check_location(Place(place.family, place.authority, tuple(segments)).spelled(data))


@pytest.mark.parametrize(
    "location",
    [
        "",
        "/",
        "//host/share",
        "/a//b",
        "warehouse/orders",
        "file:orders",
        "file://",
        "file://host/orders",
        "s3://lake",
        "s3://lake/",
        "s3:///orders",
        "s3:/lake/orders",
        "s3://key:secret@lake/orders",
        "gs://user@lake/orders",
        "abfss:///orders",
        "http://catalog/orders",
        "hdfs://lake/orders",
        "s3:lake/orders",
        "C:/orders",
        "C:\\orders",
    ],
)
def test_what_is_no_place_of_ours_is_refused(location: str) -> None:
    with pytest.raises(LocationRefused) as refused:
        check_location(location)
    assert repr(location) in refused.value.where
    assert refused.value.scope is ErrorScope.TABLE


@given(places, st.data(), segments)
def test_only_what_lies_in_an_allowed_place_is_taken(place: Place, data: st.DataObject, segment: str) -> None:
    allowed = [place.canonical, "gs://another/place"]
    inside = Place(place.family, place.authority, (*place.segments, segment))
    beside = Place(place.family, place.authority, (*place.segments[:-1], place.segments[-1] + segment))
    assert check_location(place.spelled(data), allowed) == place.canonical
    assert check_location(inside.spelled(data), allowed) == inside.canonical
    with pytest.raises(LocationRefused, match="outside"):
        check_location(beside.spelled(data), allowed)


@given(places, places)
def test_a_store_holds_whole_authorities(place: Place, other: Place) -> None:
    store = store_prefix(place.canonical)
    assert store == f"{place.family}://{place.authority}"
    assert is_below(place.canonical, store)
    assert is_below(other.canonical, store) == (store_prefix(other.canonical) == store)
    assert is_below(place.canonical, f"{place.family}://")
    assert not is_below(f"{place.canonical}s", place.canonical)


@pytest.mark.parametrize(
    ("place", "store"),
    [
        ("file:///mnt/a/t", "file:///mnt/a"),
        ("file:///mnt/a", "file:///mnt/a"),
        ("file:///mnt/a/deep/er/t", "file:///mnt/a/deep"),
        ("file:///mnt/ab/t", "file://"),
        ("s3://bucket/mnt/a", "s3://bucket"),
    ],
)
def test_a_configured_prefix_is_a_store_of_its_own(place: str, store: str) -> None:
    assert store_prefix(place, ["file:///mnt/a", "file:///mnt/a/deep"]) == store


def test_the_narrowest_of_some_prefixes() -> None:
    prefixes = ("file:///w", "file:///w/inner", "file:///v")
    assert longest_prefix("file:///w/inner", prefixes) == "file:///w/inner"
    assert longest_prefix("file:///w/innermost", prefixes) == "file:///w"
    assert longest_prefix("file:///", prefixes) is None
