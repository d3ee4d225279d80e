"""What the demo needs of a catalog, whichever it has: to start it, to stop it in the middle, to use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyiceberg.catalog import MetastoreCatalog
    from pyiceberg.catalog.rest import RestCatalog


class CatalogServer(Protocol):
    """A catalog in a folder.

    Attributes:
        title: what it is.
        place: where it answers.
        warehouse: the location below which tables lie.
        settings: how the service is told to ask it: lines of the section `catalogs.NAME`.
        upstream: where a gateway finds it; None: no gateway can stand before it.
    """

    title: str
    place: str
    warehouse: str
    settings: str
    upstream: str | None

    def start(self) -> None:
        """Have it answer."""
        ...

    def stop(self) -> None:
        """Have it answer nobody."""
        ...

    def client(self, through: str | None = None) -> RestCatalog | MetastoreCatalog:
        """For those who use its tables.

        Args:
            through: the gateway that they use; None for none.
        """
        ...
