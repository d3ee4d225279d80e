"""What must be true of a document when it is written, whatever any reader makes of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sfn.sfnfile.naming import MAIN_BRANCH, commit_ordinal

if TYPE_CHECKING:
    from tests.simulation.checker import Checker

LEASE = timedelta(seconds=20)


def check_written(checker: Checker, key: str, doc: dict[str, Any], before: dict[str, Any]) -> None:
    """Compare a document with what the catalogs had, and with what lies beside it.

    Args:
        before: what was there; empty if nothing was.
    """
    _check_head(checker, key, doc)
    if commit_ordinal(key) is not None:
        _check_commit(checker, key, doc)
        return
    _check_forwarding(checker, key, doc, before)
    if doc["state"] != before.get("state"):
        _note_unheard_of(checker, key, doc)
    if doc["state"] == "current" and doc["ref"] != MAIN_BRANCH:
        _check_lead(checker, key, doc)


def check_deletion(checker: Checker, key: str, doc: dict[str, Any]) -> None:
    """Only a tombstone may be deleted, or the file of a table that is gone."""
    whose = (doc["catalog_id"], (*doc["namespace"], doc["name"]))
    if doc["state"] == "current" and checker.is_live(*whose, doc["guid"]):
        checker.blame("a live file was deleted", f"{key} {doc['guid']}")


def _note_unheard_of(checker: Checker, key: str, doc: dict[str, Any]) -> None:
    asked = datetime.fromisoformat(doc["asked_at"])
    identifier = (*doc["namespace"], doc["name"])
    is_unheard_of = doc["state"] == "dropped" and not checker.is_known(doc["guid"], identifier, asked)
    checker.unheard_of = checker.unheard_of | {key} if is_unheard_of else checker.unheard_of - {key}


def _check_head(checker: Checker, key: str, doc: dict[str, Any]) -> None:
    """A document speaks of its branch as its metadata file does."""
    heads = checker.ranks.heads.get(doc["metadata_file_path"], {doc["ref"]: doc["snapshot_id"]})
    is_rebuilt = commit_ordinal(key) is not None and doc["snapshot_id"] is None
    if doc["state"] == "current" and not is_rebuilt and heads.get(doc["ref"], -1) != doc["snapshot_id"]:
        checker.blame("lie: branch", f"{key} {doc['ref']} at {doc['snapshot_id']}, not {heads}")


def _check_commit(checker: Checker, key: str, doc: dict[str, Any]) -> None:
    """A commit's document names a metadata file that a catalog had for that table."""
    pointer = doc["metadata_file_path"]
    if not checker.ranks.of(doc["guid"], pointer):
        checker.blame("lie: commit", f"{key} {pointer}")


def _check_lead(checker: Checker, key: str, doc: dict[str, Any]) -> None:
    """A branch's file never leads its table's: who read the branch would go back by asking for the table.

    What was suspended may create the file of a branch beside what its table became meanwhile.
    """
    had = checker.ranks.order.get((doc["catalog_id"], doc["guid"]), {})
    folder, whose = key.rpartition("/")[0] + "/", [doc[part] for part in ("namespace", "name", "guid")]
    leads = [
        lead
        for other in checker.files.below(folder)
        if other.endswith(".ver") and commit_ordinal(other) is None
        if (lead := checker.document(other))["ref"] == MAIN_BRANCH and lead["state"] == "current"
        if [lead[part] for part in ("namespace", "name", "guid")] == whose
    ]
    newest = max((max(had.get(lead["metadata_file_path"], [0])) for lead in leads), default=0)
    is_late = checker.now() - datetime.fromisoformat(doc["asked_at"]) > LEASE
    if newest < min(had.get(doc["metadata_file_path"], [0])) and not is_late:
        checker.blame_for_now("a branch ahead of its table", f"{key} {doc['metadata_file_path']}")


def _check_forwarding(checker: Checker, key: str, doc: dict[str, Any], before: dict[str, Any]) -> None:
    """A document that forwards must lead to where the same table was live before.

    That it is so still can't be had of a process that was suspended; a reader finds it dropped then.
    """
    target = (doc.get("moved_to") or {}).get("sfn_file_path")
    if doc["state"] not in {"renamed", "moved"} or target is None or doc["moved_to"] == before.get("moved_to"):
        return
    if (target, doc["guid"]) not in checker.lived:
        checker.blame("forwards to nothing", f"{key} to {target}")
