"""The keys of each command's JSON, for the command line's reference and for the tests that compare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfn.admin.schemas import AuditPage, DeadLetterPage
from sfn.admin.verdict import ServiceReport

JSON_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "adopt": ("tables",),
    "audit report": (
        *("report", "run", "began_at", "is_whole", "deep", "states", "worst_lag", "foreign", "foreign_total"),
        *("near_retention", "near_retention_total", "missing_files", "missing_files_total", "unchecked"),
        *("unchecked_total", "oldest_file_seconds", "trend"),
    ),
    "audit run": (
        *("run", "report", "tables", "states", "unchanged", "slices_resumed", "notified", "notifications_ignored"),
        *("notifications_failed", "notifications_error", "missing_files", "failures", "failures_total"),
        *("slices_failed", "slices_unread", "runs_removed"),
    ),
    "audit-log": tuple(AuditPage.model_fields),
    "check": ("findings",),
    "config show": ("file", "settings"),
    "dead-letters discard": ("discarded", "skipped"),
    "dead-letters list": tuple(DeadLetterPage.model_fields),
    "dead-letters replay": ("replayed", "failed", "skipped"),
    "dead-letters show": ("dead_letters",),
    "history": ("commits",),
    "inspect": ("sfn", "metadata", "problems"),
    "notify": ("accepted", "duplicates", "ignored"),
    "reconcile": ("catalogs",),
    "release": ("released",),
    "resolve": (
        *("metadata_location", "table_identifier", "namespace", "name", "guid", "catalog_id", "ref", "snapshot_id"),
        *("Ordinal", "written_at", "age_seconds", "sfn_file", "found_by", "via", "missing_commits", "requests"),
    ),
    "retire": ("tables",),
    "status": tuple(ServiceReport.model_fields),
    "tables": ("tables", "has_more"),
    "verify": ("ok", "findings"),
}
MORE_JSON_KEYS: Final[Mapping[str, str]] = {
    "dead-letters list": " With `--by-cause` the keys are `causes`, `letters` and `has_more`.",
    "notify": " With `--wait` there is also `tables`.",
    "reconcile": " With `--no-wait` there are also `requested_at` and `starts_at`.",
    "status": " For a table see `GET /admin/v1/tables/…` in the [HTTP API](http-api.md#admin-routes).",
}
"""What follows the keys, for commands with several forms of JSON."""
