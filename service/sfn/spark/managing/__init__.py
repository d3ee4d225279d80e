"""Bringing a table that Spark has under Iceberg's management, by Iceberg's own procedures."""
