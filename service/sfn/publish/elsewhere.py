"""Our files at the places where the table is not: moved, renamed, taken over, expired (specification, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sfn.pointer.document import Document, Link, State, render
from sfn.pointer.location import canonical
from sfn.pointer.naming import Whose
from sfn.publish.aliases import are_one_file
from sfn.publish.changes import Draft, Stage
from sfn.publish.commits import finish_commits, remove_commits
from sfn.publish.documents import successor
from sfn.publish.heirs import Heir, heir_of, is_over, may_lead_on
from sfn.publish.hints import silence_hint
from sfn.publish.older import older_files, older_first
from sfn.publish.own import File, Own
from sfn.publish.scene import Scene
from sfn.words import Ask, Reason, Table


def settle_elsewhere(scene: Scene, heirs: Mapping[str, Heir | None], draft: Draft) -> dict[str, list[Own]]:
    """Follow what became of our files away from the table's place.

    Those of a table whose new location is refused stay as they are: a wrong setting, or a catalog that answers wrong
    locations, would else give up every table at once.

    Older files first: a table has several where a publish died on its way to new settings, and a reader of the
    directory must not meet an older one once the newest is live no more.

    Returns:
        By table uuid: the live files whose table is nowhere any more, the newest last.
    """
    nowhere: dict[str, list[Own]] = {}
    held = [(own, own.doc) for own in scene.owns if own.doc is not None and not scene.is_here(own)]
    for own, doc in sorted(held, key=lambda one: one[1].as_of):
        if scene.table is not None and doc.guid == scene.table.uuid:
            _settle_moved(scene, own, doc, draft)
        elif doc.guid is not None and doc.guid in heirs and may_lead_on(scene, doc):
            _settle_renamed(scene, own, doc, heirs[doc.guid], draft)
        elif not doc.live:
            _age(scene, own, draft)
        elif _is_superseded(scene, own, doc):
            _give_up(scene, own, doc, draft, stage=Stage.SUPERSEDE)
        else:
            nowhere.setdefault(doc.guid or "", []).append(own)
    return nowhere


def _settle_moved(scene: Scene, own: Own, doc: Document, draft: Draft) -> None:
    if scene.obstacle is None:
        _move(scene, own, draft)
    elif doc.live and scene.obstacle.reason is not Reason.LOCATION_REFUSED:
        _give_up(scene, own, doc, draft)
    elif not doc.live:
        _age(scene, own, draft)


def _settle_renamed(scene: Scene, own: Own, doc: Document, heir: Heir | None, draft: Draft) -> None:
    if heir is not None:
        _rename(scene, own, doc, heir, draft)
    elif not doc.live:
        _age(scene, own, draft)
    else:
        draft.look_again(scene.look.answered + scene.policy.long_pause, "renamed to a location that is refused")


def _is_superseded(scene: Scene, own: Own, doc: Document) -> bool:
    """Whether a table of another uuid had the name later, by a file beside this one: then it is this one's no more."""
    return own.site.naming.is_by_guid and any(
        other.site == own.site and (scene.is_here(other) or (other.doc is not None and other.doc.as_of > doc.as_of))
        for other in scene.owns
        if other is not own
    )


def drop(scene: Scene, own: Own, draft: Draft, *, delete: bool = False, stage: Stage = Stage.FORWARD) -> None:
    """Say that the table is gone: the hint first, then its documents become `dropped`, or go too, the leading one last.

    While that one is live the row still knows what there is to do.
    """
    if own.doc is None:
        return
    if delete:
        # What a drop that failed has deleted must not be made again: it would stay.
        remove_commits(scene, own, draft)
    else:
        finish_commits(scene, own, draft)
    silence_hint(scene, own, draft)
    draft.stirs.add(own.site.location)
    for file in reversed(own.files):
        dropped = render(successor(scene, file.doc, State.DROPPED))
        if delete:
            draft.remove(Stage.PRUNE, file.key, file.held, otherwise=dropped)
        elif file.doc.live:
            draft.put(stage, file.key, dropped, file.held)


def _give_up(
    scene: Scene, own: Own, doc: Document, draft: Draft, *, delete: bool = False, stage: Stage = Stage.FORWARD
) -> None:
    """Drop what has no successor, once older files of the table went."""
    older = older_files(scene, doc.guid, [own]) if doc.guid is not None else []
    if older:
        draft.wait_for(older, *older_first(scene))
    else:
        drop(scene, own, draft, delete=delete, stage=stage)


def withdraw(scene: Scene, own: Own, draft: Draft) -> None:
    """Take back what speaks of a live table at a site; what speaks of a table that is gone expires.

    Of a catalog that retired nothing is left either way.
    """
    if own.doc is not None and own.doc.live:
        _give_up(scene, own, own.doc, draft, delete=True)
    elif own.doc is not None:
        _age(scene, own, draft)


def _move(scene: Scene, own: Own, draft: Draft) -> None:
    """Lead on to where the table's files are now: another location, or other settings for what they are called."""
    here, lead = scene.here, own.lead
    if here is None or lead is None:
        return
    stray = [file for file in own.files if file.doc.state in {State.CURRENT, State.MOVED, lead.doc.state}]
    link = Link(scene.name.namespace, scene.name.name, here.key)
    stray = [file for file in stray if file.doc.moved_to != link]
    if lead not in stray:
        _age(scene, own, draft)
        return
    if lead.doc.guid is not None:
        # Of a row that the inbox lost only its file still tells: a reader must not come back to it once ours is gone.
        draft.ask(older_files(scene, lead.doc.guid, [own]))
    finish_commits(scene, own, draft)
    silence_hint(scene, own, draft)
    draft.stirs.add(own.site.location)
    for file in reversed(stray):
        key = here.key if file is lead else _target(scene, here, file)
        moved = replace(successor(scene, file.doc, State.MOVED), moved_to=replace(link, sfn_file_path=key))
        draft.put(Stage.FORWARD, file.key, render(moved), file.held)


def _target(scene: Scene, here: Own, file: File) -> str:
    """Where a file's branch is now; a branch that is not published any more leads to the table."""
    if scene.table is None or file.doc.ref not in scene.policy.refs(scene.table):
        return here.key
    return scene.inventory.slot(here.site, scene.table.uuid, file.doc.ref).key


def _rename(scene: Scene, own: Own, doc: Document, heir: Heir, draft: Draft) -> None:
    site = scene.policy.site(heir.name, heir.place)
    theirs = replace(scene.inventory, name=heir.name, remembered=frozenset())
    for key in site.keys(Whose(heir.name.namespace, heir.name.name, doc.guid)):
        # Two names can share a plain file name, so what is remembered of ours may be an old state of theirs.
        scene.facts.require_read(key)
    target = theirs.slot(site, doc.guid)
    if target.obstacle is None and are_one_file(own, target):
        _hand_over(scene, own, heir, draft)
        return
    if target.obstacle is not None and scene.look.asked - doc.written_at >= scene.policy.replica_lag:
        if doc.live:
            _give_up(scene, own, doc, draft)
        else:
            _age(scene, own, draft)
        return
    if target.doc is None or not _is_current(target.doc, doc, heir):
        draft.ask([Ask(heir.name)])
        draft.look_again(scene.look.answered + scene.policy.pause, f"{heir.name} must be published first")
        return
    if scene.look.asked - doc.written_at < scene.policy.replica_lag:
        draft.look_again(doc.written_at + scene.policy.replica_lag, "the answer may be older than what is held")
        return
    finish_commits(scene, own, draft)
    silence_hint(scene, own, draft)
    draft.stirs.add(own.site.location)
    for file in reversed(own.files):
        if file.doc.live or file.doc.state is doc.state:
            branch = target if file is own.lead else theirs.slot(site, doc.guid, file.doc.ref)
            renamed = _renamed(scene, file, branch if branch.doc is not None and branch.doc.live else target, heir)
            draft.put(Stage.FORWARD, file.key, render(renamed), file.held)


def _hand_over(scene: Scene, own: Own, heir: Heir, draft: Draft) -> None:
    """The heir takes over the files that are called by the uuid; of branches that it has no file of, ours end here."""
    kept = scene.policy.refs(heir.table)
    ended = [file for file in own.files if own.held is None and file.doc.ref not in kept]
    for file in (file for file in ended if file.doc.live):
        draft.put(Stage.FORWARD, file.key, render(successor(scene, file.doc, State.DROPPED)), file.held)
    if len(ended) < len(own.files):
        draft.ask([Ask(heir.name)])
        draft.look_again(scene.look.answered + scene.policy.pause, f"{heir.name} has this file now, and must take it")
    elif not any(file.doc.live for file in ended):
        _age(scene, own, draft)


def _renamed(scene: Scene, file: File, target: Own, heir: Heir) -> Document:
    return replace(
        successor(scene, file.doc, State.RENAMED),
        moved_to=Link(heir.name.namespace, heir.name.name, target.key),
        name_now=_name_now(scene, file.doc),
    )


def _is_current(target: Document, doc: Document, heir: Heir) -> bool:
    """Whether the heir's file may be forwarded to: it names our pointer or the catalog's, or was written after ours."""
    if not target.live or target.guid != doc.guid:
        return False
    pointers = {canonical(doc.metadata_file_path), canonical(heir.table.metadata_location)}
    return canonical(target.metadata_file_path) in pointers or target.written_at >= doc.written_at


def _name_now(scene: Scene, doc: Document) -> Link | None:
    """The file of the table that has the name by now, also where another spelling of the name has that file."""
    here, found = scene.here, scene.look.found
    if here is not None:
        return Link(scene.name.namespace, scene.name.name, here.key)
    if scene.other_name is None or not isinstance(found, Table) or found.uuid == doc.guid:
        return None
    heir = heir_of(scene, scene.other_name, found)
    if heir is None:
        return None
    theirs = replace(scene.inventory, name=heir.name, remembered=frozenset())
    key = theirs.slot(scene.policy.site(heir.name, heir.place), found.uuid).key
    return Link(heir.name.namespace, heir.name.name, key)


def _age(scene: Scene, own: Own, draft: Draft) -> None:
    """What speaks of a table that is gone goes in its time, the leading file last."""
    lead = own.lead
    if lead is None:
        return
    if is_over(scene, lead.doc) or scene.policy.retired:
        silence_hint(scene, own, draft, again=True)
        remove_commits(scene, own, draft)
        for file in reversed(own.files):
            draft.remove(Stage.PRUNE, file.key, file.held)
        return
    for file in own.files:
        name_now = _name_now(scene, file.doc) if file.doc.state is State.RENAMED else None
        if file.doc.name_now is None and name_now is not None:
            named = replace(file.doc, name_now=name_now, ordinal=scene.previous + 1)
            draft.put(Stage.FORWARD, file.key, render(named), file.held)
    silence_hint(scene, own, draft, again=True)
