"""A catalog behind Iceberg's REST API: Polaris, Lakekeeper, Nessie, Gravitino, Unity, Glue, Iceberg's test server."""

from sfn.catalog.rest.auth import check_installed
from sfn.catalog.rest.catalog import RestCatalog
from sfn.catalog.rest.settings import RestSettings

__all__ = ["RestCatalog", "RestSettings", "check_installed"]
