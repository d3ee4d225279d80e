"""What SFN files are called: a name of its own for every table, on every store (specification, section 3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sfn.sfnfile.document import LAST_ORDINAL
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import (
    EXTENSION,
    IDENTIFIER,
    NAMINGS,
    ORDINAL,
    UUID,
    FileLayout,
    FileOwner,
    Naming,
    Placement,
    commit_ordinal,
    dotted_name,
    folder_below_root,
    layout_location,
    owner_prefix,
    table_folders,
)

PLACE = "s3://lake/sales/orders"
LONGEST, KEPT, DIGEST = 200, 100, 33
"""Bytes of a name without its extension, of what stays of a longer one's start, and of what is put behind that."""
FILE_NAME = 255
"""Bytes that a file system takes for one name."""


@dataclass(frozen=True, slots=True)
class Named:
    """One ref of one table."""

    namespace: tuple[str, ...]
    name: str
    ref: str = "main"

    @property
    def whose(self) -> FileOwner:
        return FileOwner(self.namespace, self.name)

    @property
    def plain(self) -> str:
        return IDENTIFIER.file_names(self.whose, self.ref)[0]

    @property
    def strict(self) -> str:
        return IDENTIFIER.file_names(self.whose, self.ref)[-1]

    @property
    def keys(self) -> tuple[str, ...]:
        return FileLayout(PLACE).keys(self.whose, self.ref)


def named(parts: st.SearchStrategy[str], refs: st.SearchStrategy[str], levels: int = 0) -> st.SearchStrategy[Named]:
    return st.builds(Named, st.lists(parts, min_size=levels, max_size=4).map(tuple), parts, refs)


THAI_DIGITS = {ord("0") + digit: ord("\N{THAI DIGIT ZERO}") + digit for digit in range(10)}
odd = st.sampled_from(
    ["head", "Head", "x_head", "%68ead", "20260821T120000", "a_20260821T120000123", "r" * 300]
) | st.just("20260821T120000".translate(THAI_DIGITS))
any_texts = st.lists(st.characters() | st.sampled_from("\ud800\udfff"), max_size=8).map("".join)
"""Half surrogate pairs too."""
alike = st.text("a_.%~5F", min_size=1, max_size=4)
"""What is easily taken for another."""
long = st.builds(
    lambda part, times, end: part * times + end, st.sampled_from(["a", "_", "é", "🧊"]), st.integers(0, 210), alike
)
anyone = named(any_texts, any_texts | odd) | named(alike, alike | odd) | named(long, st.just("main") | alike | odd)


STARTS = [(), ("é_" * 30,)]
"""Levels that leave a name short, or make it too long."""


def similar(start: tuple[str, ...]) -> Iterator[Named]:
    """Every identifier of a few signs that mean something in a file name, below a start."""
    signs = ["a", "_", ".", "%5F", "~"]
    parts = [*signs, *map("".join, product(signs, repeat=2))]
    namespaces = [(), *((sign,) for sign in signs), *product(signs, repeat=2)]
    for levels, name, ref in product(namespaces, parts, ["main", "_"]):
        yield Named((*start, *levels), name, ref)


def decoded(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "surrogatepass")


def said(name: str) -> Named:
    """The identifier that a strict name spells, told from the specification alone."""
    *levels, table, ref = name.removesuffix(EXTENSION).split("_")
    namespace = tuple(decoded(level) for level in levels[0].split(".")) if levels else ()
    return Named(namespace, decoded(table), decoded(ref))


@pytest.mark.parametrize(
    ("table", "plain", "strict"),
    [
        (Named(("sales",), "customer"), "sales_customer_main.ver", None),
        (Named((), "customer"), "customer_main.ver", None),
        (Named(("a", "b.c"), "d.e", "audit-1"), "a.b%2Ec_d%2Ee_audit-1.ver", None),
        (Named(("a_b",), "c"), "a_b_c_main.ver", "a%5Fb_c_main.ver"),
        (Named(("a",), "b_c", "d_e"), "a_b_c_d_e.ver", "a_b%5Fc_d%5Fe.ver"),
        (Named(("größe",), "🧊"), "gr%C3%B6%C3%9Fe_%F0%9F%A7%8A_main.ver", None),
        (Named(("a",), "../b\\c %~*"), "a_%2E%2E%2Fb%5Cc%20%25%7E%2A_main.ver", None),
        (Named(("a",), "t", "head"), "a_t_%68ead.ver", None),
        (Named(("a",), "t", "x_head"), "a_t_x_%68ead.ver", "a_t_x%5Fhead.ver"),
        (Named(("a",), "t", "20260821T120000"), "a_t_%320260821T120000.ver", None),
        (Named(("a",), "t", "20260821T120000123"), "a_t_%320260821T120000123.ver", None),
        (
            Named(("a" * 97,), "é" * 20 + "_x"),
            "a" * 97 + "_~91410066af8f3eba60e7e035371f88e2_main.ver",
            "a" * 97 + "_~f15e76a2a9fa16f7d10c947be652cdd3_main.ver",
        ),
    ],
)
def test_the_names_of_the_specification(table: Named, plain: str, strict: str | None) -> None:
    assert (table.plain, table.strict) == (plain, strict or plain)


@given(anyone)
def test_a_strict_name_spells_its_identifier(table: Named) -> None:
    assume("~" not in table.strict)
    assert said(table.strict) == table


@given(anyone, anyone)
def test_two_identifiers_have_two_strict_names(table: Named, other: Named) -> None:
    assert (table.strict == other.strict) == (table == other)


@pytest.mark.parametrize("start", STARTS)
def test_nor_do_identifiers_share_one_that_are_easily_taken_for_each_other(start: tuple[str, ...]) -> None:
    tables = list(similar(start))
    assert len({table.strict for table in tables}) == len(tables)


@given(anyone, st.booleans())
def test_a_name_is_made_of_what_every_store_takes(table: Named, strict: bool) -> None:
    name = table.strict if strict else table.plain
    assert re.fullmatch(r"(?:[A-Za-z0-9_.~-]|%[0-9A-F]{2})+\.ver", name)


@given(anyone, st.booleans())
def test_a_name_is_no_longer_than_a_file_system_takes(table: Named, strict: bool) -> None:
    assert len(table.strict if strict else table.plain) <= FILE_NAME


@given(anyone, st.booleans())
def test_only_what_lies_before_the_last_part_is_shortened(table: Named, strict: bool) -> None:
    whole = (table.strict if strict else table.plain).removesuffix(EXTENSION)
    start, _, last = whole.rpartition("_")
    if "~" not in whole:
        assert len(whole) <= LONGEST
        return
    if "~" in last:
        assert re.fullmatch(r"(?:[A-Za-z0-9_.-]|%[0-9A-F]{2})*~[0-9a-f]{32}", last)
        return
    assert decoded(last) == (table.ref if strict else table.ref.rpartition("_")[2])
    assert re.fullmatch(r"(?:[A-Za-z0-9_.-]|%[0-9A-F]{2})*~[0-9a-f]{32}", start)
    assert len(start) <= KEPT + DIGEST
    assert len(start) >= KEPT + DIGEST - 2 or len(last) > LONGEST - KEPT


@given(anyone)
def test_no_name_of_a_ref_is_that_of_a_head_or_of_one_commit(table: Named) -> None:
    """Which is what ordinal naming calls its files."""
    for name in (table.plain, table.strict):
        assert not re.search(r"_(?:head|[0-9]{8}T[0-9]{6}(?:[0-9]{3})?)\.ver$", name)
        assert commit_ordinal(name) is None


@pytest.mark.parametrize("start", STARTS)
def test_a_name_that_is_strict_alone_is_nobodys_plain_one(start: tuple[str, ...]) -> None:
    tables = list(similar(start))
    plain = {table.plain for table in tables}
    assert not [table for table in tables if table.strict != table.plain and table.strict in plain]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("turn", [1, -1])
def test_of_tables_with_namespaces_each_finds_a_name_and_is_found_by_it(start: tuple[str, ...], turn: int) -> None:
    """Whoever comes first takes the plain name; a reader looks for both, and a document says whose it is."""
    tables = [table for table in similar(start) if table.namespace][::turn]
    written: dict[str, Named] = {}
    for table in tables:
        free = [key for key in table.keys if key not in written]
        assert free
        written[free[0]] = table
    assert all(table in [written.get(key) for key in table.keys] for table in tables)


@given(anyone)
def test_both_names_are_looked_for_in_our_folder_the_plain_one_first(table: Named) -> None:
    place = f"{PLACE}/metadata/_sfn/"
    assert FileLayout(PLACE).folder == place
    assert table.keys == tuple(dict.fromkeys([place + table.plain, place + table.strict]))


@given(st.lists(any_texts | alike, max_size=4).map(tuple), any_texts | alike)
def test_a_dotted_name_spells_its_identifier(namespace: tuple[str, ...], name: str) -> None:
    *levels, last = dotted_name(namespace, name).split(".")
    assert (tuple(decoded(level) for level in levels), decoded(last)) == (namespace, name)


@given(anyone, anyone, st.integers(0, LAST_ORDINAL))
def test_a_commit_has_a_file_of_its_own_beside_the_head(table: Named, other: Named, ordinal: int) -> None:
    heads, commits = ORDINAL.file_names(table.whose), ORDINAL.commit_file_names(table.whose, ordinal)
    assert [commit_ordinal(name) for name in (*heads, *commits)] == [None] * len(heads) + [ordinal] * len(commits)
    assert len(heads) == len(commits)
    assert [owner_prefix(name) for name in commits] == [
        owner_prefix(name) for name in ORDINAL.commit_file_names(table.whose, 0)
    ]
    assert all(len(name) <= FILE_NAME for name in (*heads, *commits))
    assert (heads[-1] == ORDINAL.file_names(other.whose)[-1]) == (table.whose == other.whose)


@given(anyone, st.uuids().map(str) | any_texts.filter(bool), st.none() | any_texts | odd)
def test_a_name_by_uuid_stays_whatever_the_table_is_called(table: Named, guid: str, ref: str | None) -> None:
    assert UUID.file_names(FileOwner(table.namespace, table.name, guid), ref) == UUID.file_names(
        FileOwner((), "other", guid), ref
    )
    assert UUID.file_names(FileOwner((), "a", guid), "b") != UUID.file_names(FileOwner((), "a", guid + "_"), "b")


@given(anyone, st.none() | any_texts | odd, st.sampled_from(list(NAMINGS.values())))
def test_how_all_files_of_an_identifier_begin_is_known(table: Named, ref: str | None, naming: Naming) -> None:
    whose = FileOwner(table.namespace, table.name, "9c12d441-03fe-4693-9a96-a0705ddf69c1")
    assert all(name.startswith(naming.prefixes(whose)) for name in naming.file_names(whose, ref))


def test_a_table_without_a_uuid_has_no_name_by_it() -> None:
    assert UUID.file_names(FileOwner(("a",), "t")) == ()


@given(st.sampled_from(list(NAMINGS.values())), st.sampled_from(Placement))
def test_a_site_is_what_its_text_stands_for(naming: Naming, placement: Placement) -> None:
    site = FileLayout(PLACE, naming, placement)
    assert FileLayout.parse(site.encoded) == site
    assert layout_location(site.encoded) == PLACE


def test_each_placement_has_a_folder_of_its_own() -> None:
    assert [FileLayout(PLACE, IDENTIFIER, placement).folder for placement in Placement] == [
        f"{PLACE}/metadata/_sfn/",
        f"{PLACE}/_sfn/",
        f"{PLACE}/",
    ]
    assert folder_below_root("s3://lake/sfn", ("a", "b.c"), "d_e") == "s3://lake/sfn/a.b%2Ec/d_e"
    assert folder_below_root(canonical("/"), ("a",), "t") == "file:///a/t"
    assert folder_below_root("s3://lake/sfn", (), "t") == "s3://lake/sfn/t"


@given(anyone, anyone)
def test_two_identifiers_have_two_folders_below_a_root(table: Named, other: Named) -> None:
    assume(table.name and other.name and all((*table.namespace, *other.namespace)))
    mine, theirs = table_folders(table.namespace, table.name), table_folders(other.namespace, other.name)
    assert (mine == theirs) == (table.whose == other.whose)
    assert all(len(part) <= FILE_NAME and part not in {"", ".", ".."} for part in mine.split("/"))
