"""What every party has that tells of commits: the catalogs that it speaks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from sfn.errors import SfnError, suggest_name
from sfn.settings.kinds import CatalogNames, EventFormatName, Text
from sfn.settings.section import Section
from sfn.settings.sources import SettingsSources


class EventOrigin(Section):
    """Who tells of commits.

    Attributes:
        catalog: the one catalog that it speaks for.
        catalogs: or several: its own names of them, and ours.
        dialect: the format of its events, and no other; None: whichever they are recognised to be of.
    """

    catalog: Text | None = None
    catalogs: CatalogNames = Field(default_factory=dict)
    dialect: EventFormatName | None = None

    def resolve_catalogs(self, configured: Mapping[str, object]) -> Mapping[str, str]:
        """The catalogs that it speaks for, by its own names; without any of its own, the only one that there is."""
        if self.catalogs:
            return self.catalogs
        ours = [self.catalog] if self.catalog is not None else configured
        return {catalog: catalog for catalog in ours}


def check_origin_catalogs(
    keys: tuple[str, ...], origin: EventOrigin, catalogs: Mapping[str, object], sources: SettingsSources
) -> Iterator[SfnError]:
    """What is wrong with the catalogs of one party.

    Args:
        keys: to its section.
        catalogs: the configured ones, by name.
    """
    known = list(catalogs)
    if origin.catalog is not None and origin.catalogs:
        place = sources.location_of((*keys, "catalog"))
        yield SfnError(place, expected="either catalog or catalogs", found="both")
    if origin.catalog is None and not origin.catalogs and len(known) > 1:
        yield SfnError(
            sources.location_of((*keys, "catalog")),
            expected="the catalog that it speaks for, as there are several",
            found="none",
            remedy=f"configured are: {', '.join(known)}",
        )
    meant: dict[tuple[str, ...], str] = {("catalogs", theirs): ours for theirs, ours in origin.catalogs.items()}
    if origin.catalog is not None:
        meant["catalog",] = origin.catalog
    for place_of, ours in meant.items():
        if ours not in catalogs:
            yield SfnError(
                sources.location_of((*keys, *place_of)),
                expected="a configured catalog",
                found=ours,
                remedy=suggest_name(ours, known),
            )
