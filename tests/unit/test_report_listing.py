"""The listing of an audit: a namespace that fails is named, all others are listed, and an outage is found out soon."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest
from typing_extensions import override

from sfn.audit.slices import NamespacePart, list_namespaces, list_tables
from sfn.audit.throttle import MAX_TRIES, CatalogRetries
from sfn.catalogs.listing import MAX_CONSECUTIVE_FAILURES, MAX_PROBES
from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Transient
from sfn.publish.policy import TableFilter


class Failing(MemoryCatalog):
    """A catalog with namespaces that fail.

    Attributes:
        failing: the scope of the trouble that a namespace has, by its name.
        asked: how often tables were listed.
    """

    def __init__(self, *names: str) -> None:
        super().__init__("prod")
        self.failing: dict[str, ErrorScope] = {}
        self.asked = 0
        for name in names:
            self.create_namespace(name)
            self.create(TableIdentifier("prod", (name,), "t"))

    @override
    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        self._fail(parent)
        async for one in super().namespaces(parent):
            yield one

    @override
    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        self.asked += 1
        self._fail(namespace)
        async for one in super().tables_in(namespace):
            yield one

    def _fail(self, namespace: tuple[str, ...]) -> None:
        if (scope := self.failing.get(".".join(namespace))) is not None:
            raise Transient("prod", scope=scope, expected="a listing", found="none")


async def listed(catalog: Failing, patience: float = 60.0) -> tuple[list[str], list[NamespacePart]]:
    """The tables that are found, and the namespaces that could not be listed."""
    with anyio.fail_after(20):
        found = await list_namespaces("prod", catalog, TableFilter(), CatalogRetries(patience))
        good = [part for part in found if not part.refused]
        names, refused = await list_tables(good, catalog, TableFilter(), CatalogRetries(patience))
    return sorted(table.dotted for table in names), [*(part for part in found if part.refused), *refused]


@pytest.mark.parametrize("scope", [ErrorScope.TABLE, ErrorScope.CATALOG])
async def test_a_namespace_that_fails_is_named_and_all_others_are_listed(scope: ErrorScope) -> None:
    catalog = Failing("aa", "mm", "zz")
    catalog.failing = {"mm": scope}
    names, refused = await listed(catalog)
    assert names == ["aa.t", "zz.t"]
    assert {(part.namespace, part.withheld) for part in refused} == {(("mm",), False)}


async def test_a_catalog_that_lists_no_namespace_is_given_up_soon() -> None:
    names = [f"n{number:03}" for number in range(300)]
    catalog = Failing(*names)
    given = [NamespacePart("prod", (name,)) for name in names]
    catalog.failing = dict.fromkeys(names, ErrorScope.TABLE)
    with anyio.fail_after(20):
        found, refused = await list_tables(given, catalog, TableFilter(), CatalogRetries(0.0))
    assert (found, len(refused)) == ([], 300)
    assert catalog.asked <= MAX_TRIES * MAX_CONSECUTIVE_FAILURES * (1 + MAX_PROBES), "most were not asked about"
