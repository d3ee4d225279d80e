"""Older files of a table go before its newest: without that one a reader of the directory would go back to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from sfn.pointer.document import Document
from sfn.pointer.location import canonical
from sfn.pointer.naming import MAIN
from sfn.pointer.site import Site
from sfn.publish.heirs import heir_of
from sfn.publish.inventory import beside
from sfn.publish.own import Own
from sfn.publish.policy import OnDrop
from sfn.publish.scene import Scene
from sfn.words import Ask, Table, TableName


def older_files(scene: Scene, uuid: str, owns: Sequence[Own], *, is_gone: bool = True) -> list[Ask]:
    """Rows whose file names an older pointer of the table; none where files of dropped tables stay.

    Rows that have settled are known; one that died before it could is found by its file. So is one that was known
    before, and has published another table elsewhere since (`Story.older_at`). Who knows of its file is not woken: it
    looks of its own accord, and two that wake one another never rest. A branch's file goes with its leading one,
    however old it is.

    Args:
        uuid: a table that these live files of ours name.
        is_gone: the table is nowhere. If it is not, a file that was written before and names the same pointer is not
            older: its readers see the same rows, and its row may have the table again.
    """
    if scene.policy.on_drop is OnDrop.KEEP:
        return []
    written = written_at(owns)
    newest = max((own.doc for own in owns if own.doc is not None), key=lambda doc: doc.as_of)
    pointer = canonical(newest.metadata_file_path)
    older = {
        Ask(row.table, scene.policy.site(row.table, live.location).text): None
        for row, live in scene.facts.others_with(uuid, scene.name)
        if live.written_at < written and not row.is_stuck and (is_gone or canonical(live.pointer) != pointer)
    }
    # Also where the table was before: from there our file leads to the newest, and would lead there no more.
    sites = {own.site: None for own in scene.owns if own in owns or (own.doc is not None and own.doc.guid == uuid)}
    before = {site: None for site in map(Site.of, sorted(scene.claim.story.older_at)) if site not in sites}
    for site in (*sites, *before):
        for doc in beside(scene.inventory, site):
            name = TableName(scene.name.catalog, doc.namespace, doc.name)
            is_of_the_table = doc.live and doc.ref == MAIN and (doc.guid, doc.catalog_id) == (uuid, newest.catalog_id)
            is_older = doc.as_of < newest.as_of and (is_gone or canonical(doc.metadata_file_path) != pointer)
            if is_of_the_table and is_older and not (site in before and _is_stuck(scene, name)):
                older[Ask(name, site.text)] = None
    return list(older)


def _is_stuck(scene: Scene, name: TableName) -> bool:
    """Whether a row is stuck that may have published another table meanwhile."""
    table = scene.facts.look(name).found
    others = scene.facts.others_with(table.uuid, scene.name) if isinstance(table, Table) and table.uuid else []
    return any(row.table == name and row.is_stuck for row, _ in others)


def left_behind(scene: Scene, own: Own) -> list[Ask]:
    """Rows whose file lies beside ours that leads on, names the same table, and will not stay what it is.

    The table is elsewhere by the catalog's word, or nowhere: a reader that followed ours would come back to that file.
    None where files of dropped tables stay.
    """
    doc = own.doc
    if doc is None or doc.guid is None or doc.moved_to is None or scene.policy.on_drop is OnDrop.KEEP:
        return []
    stuck = {row.table for row, _ in scene.facts.others_with(doc.guid, scene.name) if row.is_stuck}
    beside_it = {
        TableName(scene.name.catalog, other.namespace, other.name): other
        for other in beside(scene.inventory, own.site)
        if other.live and other.ref == MAIN and (other.guid, other.catalog_id) == (doc.guid, doc.catalog_id)
    }
    waited_for = sorted(beside_it.keys() - stuck)
    return [Ask(name, own.site.text) for name in waited_for if not _stays(scene, name, beside_it[name], own)]


def _stays(scene: Scene, name: TableName, other: Document, own: Own) -> bool:
    """Whether a name has the table at a site, or where no file of ours may follow it.

    The site may have another name there: then the same document is found by it.
    """
    table = scene.facts.look(name).found
    if not isinstance(table, Table) or table.uuid != other.guid:
        return False
    heir = heir_of(scene, name, table)
    if heir is None or scene.policy.site(name, heir.place) == own.site:
        return True
    theirs = replace(scene.inventory, name=name, remembered=frozenset())
    return theirs.slot(scene.policy.site(name, heir.place), other.guid).doc == other


def older_first(scene: Scene) -> tuple[datetime, str]:
    """When to look again at what makes room for `older_files`, and why: these mostly wait for an absence."""
    return scene.look.answered + scene.policy.long_pause, "a row with an older file of the same table goes first"


def written_at(owns: Iterable[Own]) -> datetime:
    """When the youngest of these documents was written."""
    return max(own.doc.written_at for own in owns if own.doc is not None)
