"""The files where the table is: its document and the version hint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sfn.pointer import hintfile
from sfn.pointer.document import HINTS_KEPT, LAST_ORDINAL, Document, State, render
from sfn.pointer.lineage import Relation, relate
from sfn.pointer.location import canonical
from sfn.pointer.site import Site
from sfn.publish.changes import Draft, Put, Stage
from sfn.publish.facts import LISTED, Remember
from sfn.publish.scene import Own, Scene, hint_at
from sfn.words import Held, Table

HINT_SHOWN = 64
"""Bytes of somebody else's hint that are kept for whoever asks why it is not ours."""


def point(scene: Scene, table: Table, draft: Draft, *, turned: bool, refresh: bool) -> None:
    """Bring document and hint at the table's place in line with the catalog's answer."""
    own = scene.here
    if own is None or scene.place is None:
        return
    hint = hint_at(scene.facts, scene.place)
    alone = not _second_table(scene, table)
    wanted = hintfile.content(table) if scene.policy.version_hint and alone else None
    hint_is_ours = is_our_hint(scene, scene.place, hint)
    speaks = wanted is not None and hint_is_ours and not _is_behind(scene, table)
    # Who silenced the hint may still mean to write a tombstone over the document as it is: it must not find it so.
    is_hinted_anew = speaks and _is_silent(hint)
    if not _says(scene, own.doc, table) or is_hinted_anew or refresh:
        known = hint.body.decode(errors="replace") if hint and hint_is_ours else None
        doc = _document(scene, table, own, hint=known, turned=turned)
        draft.put(Stage.POINT, own.key, render(doc), own.held)
    if wanted is not None and not hint_is_ours and hint is not None and hint.body != wanted:
        draft.foreign_hint = hint.body[:HINT_SHOWN].decode(errors="replace")
    key = hintfile.key(scene.place)
    if wanted is None and hint is not None and hint_is_ours:
        draft.remove(Stage.HINT, key, hint, otherwise=withdrawal(scene, hint, again=True))
    elif wanted is not None and speaks and (hint is None or hint.body != wanted or refresh):
        draft.changes.append(Put(Stage.HINT, key, wanted, hint, check=(own.key, scene.place)))


def withdrawal(scene: Scene, hint: Held, *, again: bool) -> bytes | None:
    """What to write over a hint that can't be deleted; None to leave it.

    One that says nothing already gets a new text the first time: it may be a placeholder that its writer still means to
    fill.
    """
    if again and hintfile.is_withdrawn(hint.body):
        return None
    return hintfile.withdrawn(f"{scene.look.answered:%Y%m%dT%H%M%S%f}-{scene.claim.token}")


def needs_listing(scene: Scene, table: Table, *, refresh: bool) -> bool:
    """Whether who else is in the folder must be known: no live file of this table there, one that no publish of this
    row settled yet, no hint or a strange one, a refresh.
    """
    own = scene.here
    if own is None or scene.place is None or own.obstacle is not None:
        return False
    live = scene.claim.story.live
    settled = live is not None and (live.uuid, live.location) == (table.uuid, scene.place)
    written = own.doc is not None and own.doc.live and own.doc.guid == table.uuid
    if refresh or scene.facts.relist or not (settled and written):
        return True
    hint = hint_at(scene.facts, scene.place)
    return _may_create_hint(scene, table, hint) or not is_our_hint(scene, scene.place, hint)


def is_our_hint(scene: Scene, location: str, hint: Held | None) -> bool:
    """Whether the hint at a location is provably ours to replace or delete; one that is not there is."""
    if hint is None or hintfile.is_withdrawn(hint.body):
        return True
    said = hint.body.decode(errors="replace")
    if said in scene.claim.story.hints.get(location, ()):
        return True
    here = scene.siblings if location == scene.place else ()
    if said in set(spoken(doc for doc in here if doc.live and doc.catalog_id != scene.policy.catalog_id)):
        return False
    own = scene.own[location]
    beside = [doc for doc in here if doc.catalog_id == scene.policy.catalog_id]
    if said in set(spoken([*beside, own.doc] if own.doc else beside)):
        return True
    if own.doc is None or scene.table is None or own.doc.guid != scene.table.uuid:
        return False
    return said in {hintfile.stem(entry) for entry in scene.table.metadata_log}


def spoken(docs: Iterable[Document]) -> Iterable[str | None]:
    """What a hint beside these documents may say: what they name, and what they replaced."""
    for doc in docs:
        yield hintfile.stem(doc.metadata_file_path)
        yield from doc.hint_was


def _may_create_hint(scene: Scene, table: Table, hint: Held | None) -> bool:
    wanted = scene.policy.version_hint and hintfile.content(table) is not None
    return _is_silent(hint) and wanted and not _second_table(scene, table)


def _is_silent(hint: Held | None) -> bool:
    return hint is None or hintfile.is_withdrawn(hint.body)


def _second_table(scene: Scene, table: Table) -> bool:
    """Whether another live table is in the directory: by the rows, and by the files of other catalogs or names."""
    if scene.place is None:
        return False
    beside = scene.facts.folders.get(Site(scene.place).folder, ())
    if scene.facts.names(Remember(scene.place, table.uuid)) or len(beside) > LISTED:
        return True
    return any(
        doc.live and (doc.guid != table.uuid or doc.catalog_id != scene.policy.catalog_id) for doc in scene.siblings
    )


def _is_behind(scene: Scene, table: Table) -> bool:
    """Whether the table's file under another name here is ahead: then the hint is what that one says."""
    if table.uuid is None:
        return False
    return any(
        live.location == scene.place
        and relate(live.pointer, (), table.metadata_location, table.metadata_log) is Relation.OLDER
        for _, live in scene.facts.others_with(table.uuid, scene.name)
    )


def _says(scene: Scene, doc: Document | None, table: Table) -> bool:
    return (
        doc is not None
        and doc.catalog_id == scene.policy.catalog_id
        and doc.live
        and doc.guid == table.uuid
        and doc.metadata_file_path == table.metadata_location
        and doc.snapshot_id == table.snapshot_id
    )


def _document(scene: Scene, table: Table, own: Own, *, hint: str | None, turned: bool) -> Document:
    same = _says(scene, own.doc, table)
    previous = scene.previous
    ordinal = own.doc.ordinal if own.doc and same else max(min(table.last_updated_ms, LAST_ORDINAL), previous + 1)
    was = [hint] if hint is not None else []
    if own.doc is not None:
        if not same:
            was.append(hintfile.stem(own.doc.metadata_file_path) or "")
        was.extend(own.doc.hint_was)
    spoken = tuple(text for text in dict.fromkeys(was) if text and text != hintfile.stem(table.metadata_location))
    return Document(
        catalog_id=scene.policy.catalog_id,
        namespace=scene.name.namespace,
        name=scene.name.name,
        guid=table.uuid,
        metadata_file_path=table.metadata_location,
        metadata_file_relative=_relative(own.key, table.metadata_location),
        ordinal=ordinal,
        snapshot_id=table.snapshot_id,
        asked_at=scene.look.asked,
        written_at=scene.look.answered,
        hint_was=spoken[:HINTS_KEPT],
        turned=turned or _still_turned(scene, own.doc, same=same),
        writer=scene.policy.writer,
    )


def _still_turned(scene: Scene, doc: Document | None, *, same: bool) -> bool:
    """A refresh within the replicas' lag must not forget that the step before it was a backward one."""
    recent = doc is not None and scene.look.answered - doc.written_at < scene.policy.replica_lag
    return same and recent and doc is not None and doc.turned


def _relative(key: str, pointer: str) -> str | None:
    """The metadata file as seen from the document's folder, where it lies directly in the metadata folder."""
    metadata = key.rsplit("/", 2)[0]
    folder, _, name = pointer.rpartition("/")
    return f"../{name}" if canonical(folder) == metadata else None


def successor(scene: Scene, doc: Document, state: State) -> Document:
    """A document that takes another's place at its key and says what became of the table."""
    return replace(
        doc,
        catalog_id=scene.policy.catalog_id,
        state=state,
        ordinal=scene.previous + 1,
        asked_at=scene.look.asked,
        written_at=scene.look.answered,
        expires_at=scene.look.answered + scene.policy.expire_after,
        writer=scene.policy.writer,
        turned=False,
        moved_to=None,
        name_now=None,
    )
