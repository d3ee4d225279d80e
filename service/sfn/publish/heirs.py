"""Who carries a table of ours under another name (specification, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.errors import LocationRefused
from sfn.pointer.document import Document, State
from sfn.pointer.location import checked
from sfn.publish.changes import Draft
from sfn.publish.inventory import readable
from sfn.publish.scene import Scene
from sfn.publish.spelled import listed_name
from sfn.words import Ask, Table, TableName


@dataclass(frozen=True, slots=True)
class Heir:
    """The name that a table of ours has now.

    Attributes:
        name: the new name.
        table: what the catalog says of it.
        place: its canonical location.
    """

    name: TableName
    table: Table
    place: str


def find_heirs(scene: Scene, draft: Draft) -> dict[str, Heir | None]:
    """By table uuid: who carries, by the catalog's own word, a uuid that our files name and our name does not.

    None for one whose location is refused. One that was given up may have come back, or have been somewhere all along
    where nobody saw it.
    """
    heirs: dict[str, Heir | None] = {}
    for doc in scene.documents:
        uuid = doc.guid
        if uuid is None or uuid in heirs or not may_lead_on(scene, doc):
            continue
        if scene.table is not None and uuid == scene.table.uuid:
            continue
        for candidate in _candidates(scene, uuid):
            found = scene.facts.look(candidate.table).found
            if not isinstance(found, Table):
                # Another spelling of our name is told by `wake_listed`.
                draft.ask([candidate] if candidate.table != scene.other_name else [])
            elif found.uuid == uuid and found.left_alone is None:
                heirs[uuid] = heir_of(scene, _as_listed(scene, candidate.table, found), found)
                break
    return heirs


def _as_listed(scene: Scene, name: TableName, table: Table) -> TableName:
    """Return the name that has the table's file: an event may spell it in another way."""
    if name != scene.claim.wish.renamed_to or scene.policy.told:
        return name
    return listed_name(scene.facts, scene.policy, name, table, fresh=True) or name


def heir_of(scene: Scene, name: TableName, table: Table) -> Heir | None:
    """A name with the table that the catalog says it has; None where a location of that is refused."""
    try:
        checked(table.metadata_location, scene.policy.allowed)
        return Heir(name, table, checked(table.location, scene.policy.allowed))
    except LocationRefused:
        return None


def may_lead_on(scene: Scene, doc: Document) -> bool:
    """Whether a document becomes `renamed` once its table has another name.

    One that is `renamed` already stays as it is, unless the file that it leads to is gone or another table's.
    """
    if doc.live or is_over(scene, doc):
        return doc.live
    return doc.state is State.DROPPED or (doc.state is State.RENAMED and _leads_nowhere(scene, doc))


def _leads_nowhere(scene: Scene, doc: Document) -> bool:
    """Whether a document leads to a file beside it that is not the table's; of other places that is not known.

    A place that can't be read must not keep a table from being published whose name had another table before.
    """
    key = doc.moved_to.sfn_file_path if doc.moved_to is not None else ""
    if not key.startswith(tuple(own.site.folder for own in scene.owns)):
        return False
    target = readable(scene.facts.file(key))
    return target is None or target.guid != doc.guid


def is_over(scene: Scene, doc: Document) -> bool:
    """Whether what speaks of a table that is gone has done so for long enough."""
    return doc.expires_at is not None and scene.look.answered >= doc.expires_at


def _candidates(scene: Scene, uuid: str) -> list[Ask]:
    """Who may carry the table now. Who has a live file of it and knows is not woken: two names that were both dropped
    would wake one another without end.
    """
    told, others = scene.claim.wish.renamed_to, scene.facts.others_with(uuid, scene.name)
    asks = [Ask(scene.other_name)] if scene.other_name is not None else []
    asks += [Ask(told)] if told is not None and told != scene.name else []
    asks += [Ask(row.table, live.location) for row, live in others if row.table != told]
    return [ask for ask in asks if scene.policy.interest.covers(ask.table)]
