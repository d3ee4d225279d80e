"""Worker of the listener: takes jobs from the inbox, and publishes tables or sweeps catalogs.

Main types: `worker.Worker` (the loop), `sweep.CatalogSweep` (one sweep), `capacity.CapacityTracker` (concurrency and
circuit breakers), `capacity.RetryPolicy` (backoff), `outcome_log.OutcomeLog` (log records), `comparison.TableComparer`
(a table and its files). `dry_run` compares all tables of a catalog and changes nothing, and `catalog_sources` has the
configured catalogs with their stores.

Start with `Worker.run` and `Worker.claim_once`.
"""
