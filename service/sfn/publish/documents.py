"""What our documents say: of a table that is there, and of one that is not there any more."""

from __future__ import annotations

from dataclasses import replace

from sfn.pointer import hintfile
from sfn.pointer.document import HINTS_KEPT, LAST_ORDINAL, Document, State
from sfn.pointer.location import below, canonical
from sfn.pointer.site import FOLDERS, Placement, Site
from sfn.publish.hints import written
from sfn.publish.inventory import is_named
from sfn.publish.own import Own
from sfn.publish.scene import Scene
from sfn.words import Table


def says(scene: Scene, doc: Document | None, table: Table) -> bool:
    """Whether a leading document says what the catalog does."""
    return (
        doc is not None
        and is_named(doc, scene.name)
        and doc.catalog_id == scene.policy.catalog_id
        and doc.live
        and doc.guid == table.uuid
        and doc.metadata_file_path == table.metadata_location
        and doc.snapshot_id == table.snapshot_id
    )


def pointed(scene: Scene, table: Table, own: Own, *, hint: str | None, speaks: bool, turned: bool) -> Document:
    """The leading document of a table.

    Args:
        own: its files so far.
        hint: what the version hint beside it says, where that is ours.
        speaks: the hint is to say what the document does.
        turned: the step to it is not known to be forward.
    """
    same = says(scene, own.doc, table)
    previous = scene.previous
    ordinal = own.doc.ordinal if own.doc and same else max(min(table.last_updated_ms, LAST_ORDINAL), previous + 1)
    says_now = hintfile.stem(table.metadata_location) or ""
    # A number is ours where a document says that it is, not where one names its file.
    is_noted = hintfile.is_numbered(says_now)
    was = [says_now] if speaks and is_noted else []
    was += [hint] if hint is not None else []
    if own.doc is not None:
        was.extend(written([own.doc]))
    spoken = tuple(text for text in dict.fromkeys(was) if text and (is_noted or text != says_now))
    return Document(
        catalog_id=scene.policy.catalog_id,
        namespace=scene.name.namespace,
        name=scene.name.name,
        guid=table.uuid,
        metadata_file_path=table.metadata_location,
        metadata_file_relative=relative(own.site, table.metadata_location),
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


def relative(site: Site, pointer: str) -> str | None:
    """A metadata file as seen from a site's folder, where both are below the table's location."""
    at = canonical(pointer)
    if site.placement is Placement.ROOT or not below(at, site.location):
        return None
    path, folder = at.removeprefix(site.location), FOLDERS[site.placement]
    metadata = "/metadata/"
    if folder.startswith(metadata) and path.startswith(metadata):
        path, folder = path.removeprefix("/metadata"), folder.removeprefix("/metadata")
    return "../" * (folder.count("/") - 1) + path.removeprefix("/")


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
        gap=0,
        between=(),
        turned=False,
        moved_to=None,
        name_now=None,
    )
