"""A catalog behind Iceberg's REST API: Polaris, Lakekeeper, Nessie, Gravitino, Unity, Glue, Iceberg's test server."""
