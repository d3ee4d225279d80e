"""The audit: every table of catalogs of any size, compared with what lies in its directory.

    python -m sfn.spark.audit --config sfn.toml --report /warehouse/ops/audit

Spark shares the work out; each part of it runs the service's own code. Nothing is written but the report; what differs
goes to the service as hints.
"""
