"""A catalog behind Iceberg's REST API: Polaris, Lakekeeper, Nessie, Gravitino, Unity, Iceberg's own test server."""

from sfn.catalog.rest.catalog import RestCatalog
from sfn.catalog.rest.settings import RestSettings

__all__ = ["RestCatalog", "RestSettings"]
