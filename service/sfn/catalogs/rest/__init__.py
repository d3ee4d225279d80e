"""Catalogs behind Iceberg's REST API: Polaris, Lakekeeper, Nessie, Gravitino, Unity, Glue, Iceberg's test server.

`catalog.RestCatalog` implements `sfn.catalogs.Catalog`; start reading there. It sends requests through
`client.CatalogRequests`, authenticated by an `auth.Auth`. `responses` parses bodies, `errors` interprets failures, and
`credentials` caches vended credentials. `settings.RestSettings` holds the configuration of one catalog.
"""
