"""The files of a table's other branches: each says what the leading one does, of its own branch."""

from __future__ import annotations

from dataclasses import replace

from sfn.pointer.document import Document, State, render
from sfn.publish.changes import Draft, Stage
from sfn.publish.documents import successor
from sfn.publish.obstacles import in_the_way
from sfn.publish.own import File, Own
from sfn.publish.scene import Scene
from sfn.words import Table


def point_refs(scene: Scene, table: Table, own: Own, lead: Document, draft: Draft, *, anew: bool) -> None:
    """Bring the files of branches in line with the leading document.

    Args:
        own: the table's files so far.
        lead: the leading document, as it is or will be.
        anew: it is written now: then all are, for they share its metadata file.
    """
    refs = scene.policy.refs(table)
    placed = {own.key}
    for ref, snapshot in refs.items():
        slot = scene.inventory.slot(own.site, table.uuid, ref)
        if slot.obstacle is not None:
            draft.lost = in_the_way(slot, scene.name)
            continue
        placed.add(slot.key)
        doc = replace(lead, ref=ref, snapshot_id=snapshot, hint_was=(), gap=0, between=())
        if anew or slot.doc is None or not _is_alike(slot.doc, doc):
            draft.put(Stage.BRANCH, slot.key, render(doc), slot.held)
    for file in own.files:
        if file.key not in placed:
            _end(scene, file, draft)


def _is_alike(held: Document, doc: Document) -> bool:
    """Whether a branch's document says nothing else; when it was asked for does not count."""
    return replace(held, asked_at=doc.asked_at, written_at=doc.written_at, writer=doc.writer, turned=doc.turned) == doc


def _end(scene: Scene, file: File, draft: Draft) -> None:
    """A branch that is not there any more, or is not published: nobody may take it for one, and later its file goes."""
    if file.doc.live:
        draft.put(Stage.FORWARD, file.key, render(successor(scene, file.doc, State.DROPPED)), file.held)
    elif file.doc.expires_at is not None and scene.look.answered >= file.doc.expires_at:
        draft.remove(Stage.PRUNE, file.key, file.held)
