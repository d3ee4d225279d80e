"""The files where the table is: its documents and the version hint."""

from __future__ import annotations

from dataclasses import replace

from sfn.pointer import hintfile
from sfn.pointer.document import render
from sfn.pointer.lineage import Relation, relate
from sfn.pointer.site import Site
from sfn.publish.branches import point_refs
from sfn.publish.changes import Draft, Put, Stage
from sfn.publish.commits import keep_commits
from sfn.publish.documents import pointed, says
from sfn.publish.facts import LISTED, Remember
from sfn.publish.hints import is_our_hint, is_silent, withdrawal
from sfn.publish.inventory import is_named, pointers
from sfn.publish.scene import Scene, hint_at
from sfn.words import Held, Published, Table, TableName

HINT_SHOWN = 64
"""Bytes of somebody else's hint that are kept for whoever asks why it is not ours."""


def point(scene: Scene, table: Table, draft: Draft, *, turned: bool, refresh: bool) -> None:
    """Bring document and hint at the table's place in line with the catalog's answer."""
    own, site = scene.here, scene.site
    if own is None or site is None:
        return
    hint = hint_at(scene.facts, site.location) if site.has_hint else None
    alone = not _second_table(scene, table, site)
    wanted = hintfile.content(table) if _is_hinted(scene, site) and alone else None
    hint_is_ours = is_our_hint(scene, site.location, hint)
    is_due = hint is None or hint.body != wanted or refresh
    if wanted is not None and hint_is_ours and is_due and _has_rival(scene, table):
        wanted = None
    speaks = wanted is not None and hint_is_ours and not _is_behind(scene, table)
    # Who silenced the hint may still mean to write a tombstone over the document as it is: it must not find it so.
    is_hinted_anew = speaks and is_silent(hint)
    anew = not says(scene, own.doc, table) or own.held is None or is_hinted_anew or refresh
    doc = own.doc
    if anew or doc is None:
        known = hint.body.decode(errors="replace") if hint and hint_is_ours else None
        doc = pointed(scene, table, own, hint=known, speaks=speaks, turned=turned)
    if site.naming.has_commits:
        doc = keep_commits(scene, table, own, doc, draft, anew=anew)
    if anew:
        draft.put(Stage.POINT, own.key, render(doc), own.held)
    point_refs(scene, table, own, doc, draft, anew=anew)
    if anew and not alone and site.has_hint and is_silent(hint):
        # Who was here before may not have seen this file yet, and have written the hint since.
        draft.unchanged = (*draft.unchanged, hintfile.key(site.location))
    if wanted is not None and not hint_is_ours and hint is not None and hint.body != wanted:
        draft.foreign_hint = hint.body[:HINT_SHOWN].decode(errors="replace")
    key = hintfile.key(site.location)
    if wanted is None and hint is not None and hint_is_ours:
        draft.remove(Stage.HINT, key, hint, otherwise=withdrawal(scene, hint, again=True))
    elif wanted is not None and speaks and (hint is None or hint.body != wanted or refresh):
        draft.changes.append(Put(Stage.HINT, key, wanted, hint, check=(own.key, site)))


def needs_listing(scene: Scene, table: Table, *, refresh: bool) -> bool:
    """Whether who else is in the folder must be known: no live file of this table there, one that no publish of this
    row settled yet, no hint or a strange one, a refresh.
    """
    own, site = scene.here, scene.site
    if own is None or site is None or own.obstacle is not None:
        return False
    live = scene.claim.story.live
    settled = live is not None and (live.uuid, live.location) == (table.uuid, site.location)
    written = own.doc is not None and own.doc.live and own.doc.guid == table.uuid
    if refresh or scene.facts.relist or not (settled and written):
        return True
    if site.naming.has_commits and not says(scene, own.doc, table):
        # Its commits are about to be listed.
        return True
    hint = hint_at(scene.facts, site.location) if site.has_hint else None
    return _may_create_hint(scene, table, site, hint) or not is_our_hint(scene, site.location, hint)


def _is_hinted(scene: Scene, site: Site) -> bool:
    return scene.policy.version_hint and site.has_hint


def _has_rival(scene: Scene, table: Table) -> bool:
    """Whether a reader would open another file by the hint, as one of that name lies there."""
    rival = hintfile.rival(table)
    return rival is not None and rival in scene.facts.existing([rival])


def _may_create_hint(scene: Scene, table: Table, site: Site, hint: Held | None) -> bool:
    wanted = _is_hinted(scene, site) and hintfile.content(table) is not None
    return is_silent(hint) and wanted and not _second_table(scene, table, site)


def _second_table(scene: Scene, table: Table, site: Site) -> bool:
    """Whether another live table is in the directory: by the rows, and by the files of other catalogs or names."""
    beside = pointers(scene.facts.folders.get(site.folder, ()))
    if scene.facts.names(Remember(site.text, table.uuid)) or len(beside) > LISTED:
        return True
    return any(
        doc.live and (doc.guid != table.uuid or doc.catalog_id != scene.policy.catalog_id) for doc in scene.siblings
    )


def _is_behind(scene: Scene, table: Table) -> bool:
    """Whether the table's file under another name here is ahead: then the hint is what that one says."""
    if table.uuid is None:
        return False
    return any(
        relate(live.pointer, (), table.metadata_location, table.metadata_log) is Relation.OLDER
        and _is_beside(scene, row.table, live, table.uuid)
        for row, live in scene.facts.others_with(table.uuid, scene.name)
    )


def _is_beside(scene: Scene, name: TableName, live: Published, uuid: str) -> bool:
    """Whether the file of another name lies in the table's directory, whatever location that name's table has."""
    if scene.site is None or live.location == scene.site.location:
        return scene.site is not None
    theirs = replace(scene.inventory, name=name, remembered=frozenset())
    doc = theirs.slot(scene.site, uuid).doc
    return doc is not None and doc.live and is_named(doc, name)
