"""Iceberg's REST compatibility kit: its own Java client, tried against a catalog."""
