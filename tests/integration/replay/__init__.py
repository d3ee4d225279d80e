"""Raw requests for every route of Iceberg's REST API, sent to a catalog itself and through a gateway."""
