"""Our files at the places where the table is not: moved, renamed, taken over, expired (specification, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sfn.errors import LocationRefused
from sfn.pointer import hintfile
from sfn.pointer.document import Document, Link, State, render
from sfn.pointer.location import canonical, checked
from sfn.pointer.naming import Whose
from sfn.pointer.site import Site
from sfn.publish.changes import Draft, Stage
from sfn.publish.facts import WhoIsAt
from sfn.publish.older import older_files, older_first
from sfn.publish.pointing import is_our_hint, spoken, successor, withdrawal
from sfn.publish.scene import Own, Scene, beside, hint_at, own_file
from sfn.words import Ask, Held, Reason, Table, TableName


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
    """By table uuid: who carries, by the catalog's own word, a uuid that our live files name and our name does not.

    None for one whose location is refused.
    """
    heirs: dict[str, Heir | None] = {}
    for doc in scene.documents:
        uuid = doc.guid
        if not doc.live or uuid is None or uuid in heirs or (scene.table is not None and uuid == scene.table.uuid):
            continue
        for candidate in _candidates(scene, uuid):
            found = scene.facts.look(candidate.table).found
            if not isinstance(found, Table):
                draft.ask([candidate])
            elif found.uuid == uuid and found.left_alone is None:
                heirs[uuid] = _heir(scene, candidate.table, found)
                break
    return heirs


def settle_elsewhere(scene: Scene, heirs: Mapping[str, Heir | None], draft: Draft) -> dict[str, list[str]]:
    """Follow what became of our files away from the table's place.

    Those of a table whose new location is refused stay as they are: a wrong setting, or a catalog that answers wrong
    locations, would else give up every table at once.

    Returns:
        By table uuid: the locations of live files whose table is nowhere any more.
    """
    nowhere: dict[str, list[str]] = {}
    for location, own in sorted(scene.own.items()):
        doc, held = own.doc, own.held
        if location == scene.place or doc is None or held is None:
            continue
        if scene.table is not None and doc.guid == scene.table.uuid and doc.state in {State.CURRENT, State.MOVED}:
            if scene.obstacle is None:
                _move(scene, location, own, doc, held, draft)
            elif doc.live and scene.obstacle.reason is not Reason.LOCATION_REFUSED:
                _give_up(scene, location, doc, draft)
            elif not doc.live:
                _age(scene, location, own, doc, held, draft)
        elif doc.live and doc.guid is not None and doc.guid in heirs:
            heir = heirs[doc.guid]
            if heir is not None:
                _rename(scene, location, own, doc, held, heir, draft)
            else:
                draft.look_again(scene.look.answered + scene.policy.long_pause, "renamed to a location that is refused")
        elif doc.live:
            nowhere.setdefault(doc.guid or "", []).append(location)
        else:
            _age(scene, location, own, doc, held, draft)
    return nowhere


def drop(scene: Scene, location: str, draft: Draft, *, delete: bool = False) -> None:
    """Say that the table is gone: the hint first, then the document becomes `dropped`, or goes too."""
    own = scene.own[location]
    if own.doc is None or own.held is None:
        return
    silence_hint(scene, location, draft)
    draft.stirs.add(location)
    dropped = render(successor(scene, own.doc, State.DROPPED))
    if delete:
        draft.remove(Stage.PRUNE, own.key, own.held, otherwise=dropped)
    else:
        draft.put(Stage.FORWARD, own.key, dropped, own.held)


def _give_up(scene: Scene, location: str, doc: Document, draft: Draft, *, delete: bool = False) -> None:
    """Drop what has no successor, once older files of the table went."""
    older = older_files(scene, doc.guid, [location]) if doc.guid is not None else []
    if older:
        draft.ask(older)
        draft.look_again(*older_first(scene))
    else:
        drop(scene, location, draft, delete=delete)


def withdraw(scene: Scene, location: str, draft: Draft) -> None:
    """Take back what speaks of a live table at a location; what speaks of a table that is gone expires.

    Of a catalog that retired nothing is left either way.
    """
    own = scene.own[location]
    if own.doc is not None and own.doc.live:
        _give_up(scene, location, own.doc, draft, delete=True)
    elif own.doc is not None and own.held is not None:
        _age(scene, location, own, own.doc, own.held, draft)


def silence_hint(scene: Scene, location: str, draft: Draft, *, again: bool = False) -> None:
    """Delete the hint at a location where this row's table is no more, if it is ours.

    Not where it speaks for a table that lives there under another name, be it the same table, or for another catalog's:
    two that have registered one metadata file have the same hint.

    Args:
        again: this was done before, so a hint that says nothing already may stay as it is.
    """
    hint, doc = hint_at(scene.facts, location), scene.own[location].doc
    if hint is None or doc is None or not is_our_hint(scene, location, hint):
        return
    others = scene.facts.names(WhoIsAt(location))
    if hintfile.is_withdrawn(hint.body):
        draft.ask(Ask(name) for name in others)
    if not any(_speaks_for(scene, name, location, hint) for name in others) and not _is_said(scene, location, hint):
        draft.remove(Stage.SILENCE, hintfile.key(location), hint, otherwise=withdrawal(scene, hint, again=again))


def _speaks_for(scene: Scene, name: TableName, location: str, hint: Held) -> bool:
    """Whether a hint is what another row's live file there says, or said."""
    for key in Site(location).keys(Whose(name.namespace, name.name)):
        scene.facts.require_read(key)
    doc = own_file(scene.facts, name, scene.policy, location).doc
    return doc is not None and doc.live and hint.body.decode(errors="replace") in set(spoken([doc]))


def _is_said(scene: Scene, location: str, hint: Held) -> bool:
    """Whether a live file beside ours, of whomever, says what the hint says, or said it."""
    live = [doc for doc in beside(scene.facts, scene.name, scene.policy, location) if doc.live]
    return hint.body.decode(errors="replace") in set(spoken(live))


def _candidates(scene: Scene, uuid: str) -> list[Ask]:
    """Who may carry the table now. Who has a live file of it and knows is not woken: two names that were both dropped
    would wake one another without end.
    """
    told, others = scene.claim.wish.renamed_to, scene.facts.others_with(uuid, scene.name)
    asks = [Ask(told)] if told is not None and told != scene.name else []
    asks += [Ask(row.table, live.location) for row, live in others if row.table != told]
    return [ask for ask in asks if scene.policy.interest.covers(ask.table)]


def _heir(scene: Scene, name: TableName, table: Table) -> Heir | None:
    try:
        checked(table.metadata_location, scene.policy.allowed)
        return Heir(name, table, checked(table.location, scene.policy.allowed))
    except LocationRefused:
        return None


def _move(scene: Scene, location: str, own: Own, doc: Document, held: Held, draft: Draft) -> None:
    here = scene.here
    if here is None or (doc.moved_to is not None and doc.moved_to.sfn_file_path == here.key):
        if doc.state is State.MOVED:
            _age(scene, location, own, doc, held, draft)
        return
    moved = replace(successor(scene, doc, State.MOVED), moved_to=Link(scene.name.namespace, scene.name.name, here.key))
    silence_hint(scene, location, draft)
    draft.put(Stage.FORWARD, own.key, render(moved), held)
    draft.stirs.add(location)


def _rename(scene: Scene, location: str, own: Own, doc: Document, held: Held, heir: Heir, draft: Draft) -> None:
    for key in Site(heir.place).keys(Whose(heir.name.namespace, heir.name.name)):
        # Two names can share a plain file name, so what is remembered of ours may be an old state of theirs.
        scene.facts.require_read(key)
    target = own_file(scene.facts, heir.name, scene.policy, heir.place)
    if target.obstacle is not None and scene.look.asked - doc.written_at >= scene.policy.replica_lag:
        _give_up(scene, location, doc, draft)
        return
    if target.doc is None or not _is_current(target.doc, doc, heir):
        draft.ask([Ask(heir.name)])
        draft.look_again(scene.look.answered + scene.policy.pause, f"{heir.name} must be published first")
        return
    if scene.look.asked - doc.written_at < scene.policy.replica_lag:
        draft.look_again(doc.written_at + scene.policy.replica_lag, "the answer may be older than what is held")
        return
    renamed = replace(
        successor(scene, doc, State.RENAMED),
        moved_to=Link(heir.name.namespace, heir.name.name, target.key),
        name_now=_name_now(scene),
    )
    if heir.place != location:
        silence_hint(scene, location, draft)
    draft.put(Stage.FORWARD, own.key, render(renamed), held)
    draft.stirs.add(location)


def _is_current(target: Document, doc: Document, heir: Heir) -> bool:
    """Whether the heir's file may be forwarded to: it names our pointer or the catalog's, or was written after ours."""
    if not target.live or target.guid != doc.guid:
        return False
    pointers = {canonical(doc.metadata_file_path), canonical(heir.table.metadata_location)}
    return canonical(target.metadata_file_path) in pointers or target.written_at >= doc.written_at


def _name_now(scene: Scene) -> Link | None:
    here = scene.here
    return Link(scene.name.namespace, scene.name.name, here.key) if here is not None else None


def _age(scene: Scene, location: str, own: Own, doc: Document, held: Held, draft: Draft) -> None:
    expired = doc.expires_at is not None and scene.look.answered >= doc.expires_at
    if expired or scene.policy.retired:
        silence_hint(scene, location, draft, again=True)
        draft.remove(Stage.PRUNE, own.key, held)
        return
    if doc.state is State.RENAMED and doc.name_now is None and scene.here is not None:
        named = replace(doc, name_now=_name_now(scene), ordinal=scene.previous + 1)
        draft.put(Stage.FORWARD, own.key, render(named), held)
    silence_hint(scene, location, draft, again=True)
