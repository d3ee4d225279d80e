"""What does not fit together of the facade, and of it with the stores that it reads."""

from __future__ import annotations

from collections.abc import Iterator

from sfn.errors import SfnError
from sfn.settings.model import Settings
from sfn.settings.sources import SettingsSources
from sfn.sfnfile.locations import is_below


def check_facade(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything of the section `facade` that can't work."""
    facade, stores = settings.facade, [one.prefix for one in settings.stores.values()]
    if facade.open and facade.has_token:
        yield SfnError(
            sources.location_of(("facade", "open")),
            expected="false, as there is a token",
            found="true",
            remedy="keep one",
        )
    if facade.is_on and not stores:
        yield SfnError(
            sources.location_of(("stores",)),
            expected="a store that the facade reads tables from",
            found="none: what a catalog vends is for its tables' files alone",
            remedy='write [stores.NAME] prefix = "…"',
        )
    for root in facade.roots:
        if stores and not any(is_below(root, prefix) for prefix in stores):
            yield SfnError(
                sources.location_of(("facade", "roots")),
                expected=f"places below a store: {', '.join(stores)}",
                found=root,
                remedy="configure a store that holds it",
            )
