"""What every party has that tells of commits: the catalogs that it speaks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from sfn.errors import SfnError, nearest
from sfn.settings.kinds import Dialect, Names, Text
from sfn.settings.section import Section
from sfn.settings.sources import Sources


class Bound(Section):
    """Who tells of commits.

    Attributes:
        catalog: the one catalog that it speaks for.
        catalogs: or several: its own names of them, and ours.
        dialect: the format of its events, and no other; None: whichever they are recognised to be of.
    """

    catalog: Text | None = None
    catalogs: Names = Field(default_factory=dict)
    dialect: Dialect | None = None

    def among(self, configured: Mapping[str, object]) -> Mapping[str, str]:
        """The catalogs that it speaks for, by its own names; without any of its own, the only one that there is."""
        if self.catalogs:
            return self.catalogs
        ours = [self.catalog] if self.catalog is not None else configured
        return {catalog: catalog for catalog in ours}


def unbound(
    keys: tuple[str, ...], party: Bound, catalogs: Mapping[str, object], sources: Sources
) -> Iterator[SfnError]:
    """What is wrong with the catalogs of one party.

    Args:
        keys: to its section.
        catalogs: the configured ones, by name.
    """
    known = list(catalogs)
    if party.catalog is not None and party.catalogs:
        place = sources.place((*keys, "catalog"))
        yield SfnError(place, expected="either catalog or catalogs", found="both")
    if party.catalog is None and not party.catalogs and len(known) > 1:
        yield SfnError(
            sources.place((*keys, "catalog")),
            expected="the catalog that it speaks for, as there are several",
            found="none",
            remedy=f"configured are: {', '.join(known)}",
        )
    meant: dict[tuple[str, ...], str] = {("catalogs", theirs): ours for theirs, ours in party.catalogs.items()}
    if party.catalog is not None:
        meant["catalog",] = party.catalog
    for place_of, ours in meant.items():
        if ours not in catalogs:
            yield SfnError(
                sources.place((*keys, *place_of)),
                expected="a configured catalog",
                found=ours,
                remedy=nearest(ours, known),
            )
