"""Stores: tried with a file of our own, which is gone again in the end."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import PurePath

from anyio import Path, to_thread

from sfn.cli.checks.findings import CheckFinding, Severity, error_finding, ok_finding, warning_finding
from sfn.errors import ErrorScope, Permanent, SfnError
from sfn.mounts import LOCAL_LOCKS_PROBLEM, LOCAL_LOCKS_REMEDY, mount_of, mounts
from sfn.sfnfile.locations import is_below, scheme_of
from sfn.sfnfile.naming import FileLayout
from sfn.storage import Deleted, Guarantees, ObjectStore, PreconditionFailed, StoreRouter

_NAME = "sfn-check-"
_BODY = b"written by `sfn check`, which removes it at once\n"
_TABLES = 3
"""Tables of a store whose metadata folder is tried at most."""


async def store_finding(name: str, prefix: str, tried: ObjectStore, places: Sequence[str]) -> CheckFinding:
    """Whether files can be written there, on conditions that hold.

    Args:
        prefix: canonical, of the configuration.
        places: canonical locations of tables; those below the prefix are tried, for there the service writes.
    """
    where = f"stores.{name}"
    try:
        folder = await _probe_folder(prefix, tried, places)
        await tried.list(f"{folder}/", 1)
        guarantees = await _probe(tried, f"{folder}/{_NAME}{secrets.token_hex(8)}")
    except Permanent as error:
        if error.scope is ErrorScope.TABLE and not any(is_below(place, prefix) for place in places):
            # Tables' folders may be somebody else's to make, and the service's to write in.
            return error_finding(where, error, Severity.WARNING)
        return error_finding(where, error)
    except SfnError as error:
        return error_finding(where, error)
    if scheme_of(prefix) == "file":
        path = await Path(folder.removeprefix("file://")).resolve()
        mount = mount_of(PurePath(path), await to_thread.run_sync(mounts))
        if mount is not None and mount.local_locks is not None:
            return warning_finding(
                where, f"{folder}: mounted from NFS with {mount.local_locks}: {LOCAL_LOCKS_PROBLEM}", LOCAL_LOCKS_REMEDY
            )
    return _guarantee_finding(where, folder, guarantees)


async def root_finding(name: str, folder: str, stores: StoreRouter) -> CheckFinding:
    """Whether the folder of a catalog with the placement `root` is there, and files can be written into it.

    Args:
        name: of the catalog.
        folder: canonical.
    """
    where = f"catalogs.{name}.root"
    try:
        tried = stores.store_for(folder)
        # A write would make it, and hide that its file system is not mounted.
        if scheme_of(folder) == "file" and not await Path(folder.removeprefix("file://")).is_dir():
            remedy = "make it, or mount its file system, or correct the setting"
            return error_finding(where, SfnError(folder, expected="a folder", found="none", remedy=remedy))
        return _guarantee_finding(where, folder, await _probe(tried, f"{folder}/{_NAME}{secrets.token_hex(8)}"))
    except SfnError as error:
        return error_finding(where, error)


async def _probe_folder(prefix: str, tried: ObjectStore, places: Sequence[str]) -> str:
    """Where to try: where a table's files are, else the prefix. No folder is made."""
    for place in [place for place in places if is_below(place, prefix)][:_TABLES]:
        try:
            is_there = await tried.list(f"{place}/metadata/", 1)
        except Permanent as error:
            if error.scope is not ErrorScope.TABLE:
                raise
            # Its own trouble, such as a link in a folder's place, is in its dead letter.
            continue
        if is_there:
            # An object store has no folders to be made, and a policy may grant what is ours alone.
            return f"{place}/metadata" if scheme_of(place) == "file" else FileLayout(place).folder.rstrip("/")
    return prefix


async def _probe(tried: ObjectStore, key: str) -> Guarantees:
    guarantees = await tried.probe(key)
    if not guarantees.conditional_delete:
        # A file could be left behind. The proof has written and deleted one in this folder, or elsewhere in the bucket.
        return guarantees
    made = await tried.write(key, _BODY, None)
    if isinstance(made, PreconditionFailed):
        raise Permanent(key, scope=ErrorScope.TABLE, expected="a name that no file has", found="a file of that name")
    try:
        await tried.read(key)
    finally:
        if not isinstance(await tried.delete(key, made), Deleted):
            raise Permanent(
                key, scope=ErrorScope.STORE, expected="a deleted file", found="one that was changed", remedy="delete it"
            )
    return guarantees


def _guarantee_finding(where: str, folder: str, guarantees: Guarantees) -> CheckFinding:
    if not guarantees.swap:
        remedy = "let one service alone write there, and no other process"
        return warning_finding(
            where, f"{folder}: it ignores conditions, and unsafe_unconditional_writes is set", remedy
        )
    if not guarantees.conditional_delete:
        remedy = "none is needed: tombstones stay where other stores delete them"
        return warning_finding(where, f"{folder}: writes are conditional, deletes are not", remedy)
    return ok_finding(where, f"{folder}: written, swapped on a condition, deleted on a condition")
