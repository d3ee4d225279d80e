"""Audit whole catalogs on Spark: compare every table with its directory, and write a report as an Iceberg table.

- `spark_job`: `run_audit`, the whole run as the Spark driver sees it. Start here.
- `slices`: list a catalog's tables, and check those of one slice (a fixed share of the tables, one task of Spark):
  `audit_slice`, `AuditOptions`, `AuditRun`.
- `report`: the columns of the report (`ReportRow`, `RunTotals`), its states (`AuditState`), and its slices.
- `writer`: write a run's slices into the report, resume a run, remove old ones: `RunProgress`.
- `storage`: the report's place, a directory or a table of a catalog: `ReportLocation`, `DirectoryCatalog`.
- `throttle`: limit the rate of requests to catalogs, and try failed ones again.
- `read`: read a report, for `sfn audit report`.
- `run`: what `sfn audit run` does. `__main__`: its file for `spark-submit`.
"""
