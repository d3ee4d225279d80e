"""Where the truth about tables is, and what becomes of rows whose catalog is no source any more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

import structlog

from sfn.catalogs import Catalog
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, LeasedJob
from sfn.errors import SfnError
from sfn.publish.policy import Policy
from sfn.storage import StoreRouter
from sfn.work.vended import VendedStores

_EXPECTED: Final = "a configured catalog of that name, as the table's file still says that it is current"
_REMEDY: Final = (
    "put [catalogs.{0}] back into the configuration and `sfn retire {0}`, or replay this if the catalog is to stay; "
    "or discard this, and the file stays as it is"
)

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectedCatalog:
    """A catalog and how its tables are published.

    Attributes:
        catalog: tells the truth.
        policy: the settings.
        vended_stores: what opens its tables' places, where the catalog says it.
    """

    catalog: Catalog
    policy: Policy
    vended_stores: VendedStores | None = None

    def stores_for(self, table: TableIdentifier, configured: StoreRouter) -> StoreRouter:
        """Where the files of a table are.

        Args:
            configured: the configured stores.
        """
        return configured if self.vended_stores is None else self.vended_stores.for_table(table)


class CatalogRegistry(Protocol):
    """The configured catalogs."""

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        """The source of that name, None where none is configured.

        Raises:
            Trouble: scope catalog, while nobody can tell yet whose tables they are.
        """
        ...

    def is_retired(self, catalog: str) -> bool:
        """Whether a catalog retired, be it still configured or not."""
        ...


def outcome_for_unconfigured(claim: LeasedJob, now: datetime, *, retired: bool) -> Done | DeadLettered:
    """What becomes of a row whose catalog is not configured: nobody can publish it, and nobody will ask for it.

    A letter only where readers are still told of a table, and nobody said that they should not be. It is the last word
    of its row, or it would come back however often somebody discards it.

    Args:
        retired: the catalog retired before it went.
    """
    live = claim.table_state.live
    if live is not None and not retired:
        error = SfnError(
            str(claim.subject), expected=_EXPECTED, found="none", remedy=_REMEDY.format(claim.subject.catalog)
        )
        return DeadLettered(DeadLetterReason.PERMANENT, str(error))
    if live is not None:
        remedy = "delete the SFN file below it, or put the catalog back into the configuration until none is live"
        _log.warning("file left behind", table=str(claim.subject), location=live.location, remedy=remedy)
    return Done(now, forget=True)
