"""Who changes the tables of a world's catalogs, and which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfn.domain.identifiers import TableIdentifier
from tests.simulation.clients import Passing
from tests.simulation.life import Life
from tests.simulation.setting import Setting
from tests.simulation.telling import ToldLife

if TYPE_CHECKING:
    from tests.simulation.world import World


def life_of(world: World, index: int) -> Life:
    """The operations of a catalog's users."""
    setting, catalog = world.setting, world.truths[index].name
    names = [TableIdentifier(catalog, ("n",), letter) for letter in "abcdefghij"[: setting.names]]
    if setting.shared:
        names = [TableIdentifier(catalog, ("a_b",), "c"), TableIdentifier(catalog, ("a",), "b_c"), *names[:1]]
    if setting.gateway:
        # What has to be encoded in a path.
        names[-1] = TableIdentifier(catalog, ("n", "m"), "x y")
    places = [f"s3://lake/{number}" for number in range(setting.places)]
    return _kind(setting)(
        world, index, names, places, dict(setting.operations), setting.shared, setting.lost, setting.pace
    )


def _kind(setting: Setting) -> type[Life]:
    if setting.gateway:
        return Passing
    return ToldLife if setting.told else Life
