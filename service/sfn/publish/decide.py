"""The decision of one publish, pure: from what the catalog said and what lies there to what is to be written.

`decide` returns a `Question` where it lacks something, a `Plan` where files must change, or an outcome where none must.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from sfn.errors import LocationRefused
from sfn.pointer import hintfile
from sfn.pointer.location import checked
from sfn.pointer.naming import Whose
from sfn.pointer.site import Site
from sfn.publish.absence import settle_absent
from sfn.publish.changes import Change, Draft, Plan, Put, Stage
from sfn.publish.elsewhere import find_heirs, settle_elsewhere, withdraw
from sfn.publish.facts import Facts, Lacking, Question
from sfn.publish.pointing import is_our_hint, needs_listing, point
from sfn.publish.policy import Policy
from sfn.publish.scene import Scene, beside, hint_at, own_file
from sfn.publish.trust import await_table, await_unheard, hindrance, is_turned, keep_unheard
from sfn.publish.verdict import conclude, next_refresh, nothing_there, unwritten
from sfn.words import Claim, Dead, Done, Findings, Later, Reason, Table, TableName, Unwritten

Verdict: TypeAlias = Question | Plan | Done | Later | Dead


def decide(claim: Claim, facts: Facts, policy: Policy, *, now: datetime, jitter: float) -> Verdict:
    """What to do next about a claimed table.

    Args:
        claim: the row; its subject must be a table.
        facts: what was learnt so far.
        policy: the catalog's settings.
        now: when the claim was taken up.
        jitter: in [0, 1), spreads the refreshes.
    """
    adopts = claim.wish.adopts
    if adopts is not None and isinstance(claim.subject, TableName):
        policy = replace(policy, adopted=(claim.subject, adopts))
    try:
        return _decide(claim, facts, policy, now, jitter)
    except Lacking as lacking:
        return lacking.question


def _decide(claim: Claim, facts: Facts, policy: Policy, now: datetime, jitter: float) -> Plan | Done | Later | Dead:
    name = claim.subject
    if not isinstance(name, TableName):
        raise TypeError(name)
    look = facts.look(name)
    if isinstance(look.found, Unwritten):
        return unwritten(claim, look, policy, jitter)
    table = look.found if isinstance(look.found, Table) else None
    place, refused = _place(table, policy)
    locations = claim.locations | ({place} if place is not None else set())
    own = {location: own_file(facts, name, policy, location) for location in sorted(locations)}
    scene = Scene(claim, facts, policy, name, look, table, place, own, obstacle=refused)
    refresh = claim.story.refresh_at is not None and now >= claim.story.refresh_at
    # Where nobody can ask, that there is none says only that nothing is heard of it.
    left_out = (table is not None or policy.told) and not policy.interest.covers(name)
    if left_out or policy.retired or (table is not None and table.left_alone is not None):
        return _withdraw(scene, refresh=refresh, jitter=jitter)
    return _follow(scene, refresh=refresh, jitter=jitter)


def _follow(scene: Scene, *, refresh: bool, jitter: float) -> Plan | Done | Later | Dead:
    draft = Draft()
    table = scene.table
    await_unheard(scene, draft)
    if table is not None:
        stopped = hindrance(scene, table, draft)
        if isinstance(stopped, Dead):
            return _held(scene, stopped, refresh=refresh, jitter=jitter)
        if stopped is not None:
            return stopped
        scene = _with_obstacle(scene)
        if scene.place is not None and scene.obstacle is None:
            if needs_listing(scene, table, refresh=refresh):
                scene.facts.require_read(hintfile.key(scene.place))
                scene = replace(scene, siblings=beside(scene.facts, scene.name, scene.policy, scene.place))
            point(scene, table, draft, turned=is_turned(scene, table), refresh=refresh)
    else:
        await_table(scene, draft)
    heirs = find_heirs(scene, draft)
    nowhere = settle_elsewhere(scene, heirs, draft)
    settle_absent(scene, nowhere, draft)
    if table is None and not scene.documents:
        return nothing_there(scene, draft)
    if draft.dead is not None:
        story = replace(scene.claim.story, absent=draft.absent, held=True)
        return _held(scene, replace(draft.dead, findings=Findings(story)), refresh=refresh, jitter=jitter)
    if refresh:
        _touch(scene, draft)
    return _concluded(scene, draft, refresh=refresh, jitter=jitter)


def _held(scene: Scene, dead: Dead, *, refresh: bool, jitter: float) -> Plan | Dead:
    """A row that waits for an operator: its files stay as they are, and young enough for cleaners to leave them."""
    story = dead.findings.story if dead.findings is not None else scene.claim.story
    if refresh or story.refresh_at is None:
        story = replace(story, refresh_at=next_refresh(scene.look, scene.policy, jitter))
    draft = Draft()
    for location, own in scene.own.items() if refresh else ():
        hint = hint_at(scene.facts, location)
        if own.held is not None:
            draft.put(Stage.FORWARD, own.key, own.held.body, own.held)
        if hint is not None and is_our_hint(scene, location, hint):
            draft.put(Stage.HINT, hintfile.key(location), hint.body, hint)
    changes = draft.ordered()
    dead = replace(dead, findings=Findings(story), look_at=story.refresh_at)
    if not changes:
        return dead
    _verify(scene, changes)
    return Plan(changes, dead)


def _withdraw(scene: Scene, *, refresh: bool, jitter: float) -> Plan | Done | Later | Dead:
    """A table that gets no files (any more): ours go."""
    draft = Draft()
    scene = replace(scene, table=None, place=None)
    keep_unheard(scene, draft)
    if not scene.documents:
        return nothing_there(scene, draft)
    if draft.unheard:
        draft.look_again(scene.look.answered + scene.policy.refresh_after, "what was told means nothing yet")
    for location in scene.own:
        withdraw(scene, location, draft)
    if refresh:
        _touch(scene, draft)
    return _concluded(scene, draft, refresh=refresh, jitter=jitter)


def _concluded(scene: Scene, draft: Draft, *, refresh: bool, jitter: float) -> Plan | Done | Later | Dead:
    changes = _possible(draft.ordered(), scene.facts)
    _verify(scene, changes)
    outcome = conclude(scene, draft, changes, refresh=refresh, jitter=jitter)
    return Plan(changes, outcome) if changes else outcome


def _with_obstacle(scene: Scene) -> Scene:
    """The scene with what stands in the way at the table's place, if anything does."""
    own = scene.here
    if own is None or own.obstacle is None:
        return scene
    detail = f"{own.key} is not ours: "
    if own.obstacle is Reason.FOREIGN_CATALOG:
        adopt = f"`sfn adopt {scene.name.catalog} --from {own.owner}`"
        detail += f"it belongs to the same identifier of another catalog; {adopt} takes it over"
    else:
        detail += "it is no SFN document of a catalog that can be told; look at it, then move or delete it"
    return replace(scene, obstacle=Dead(own.obstacle, detail))


def _place(table: Table | None, policy: Policy) -> tuple[str | None, Dead | None]:
    if table is None:
        return None, None
    try:
        checked(table.metadata_location, policy.allowed)
        return checked(table.location, policy.allowed), None
    except LocationRefused as refused:
        return None, Dead(Reason.LOCATION_REFUSED, str(refused))


def _touch(scene: Scene, draft: Draft) -> None:
    """Write what stays as it is once more, unchanged: cleaners delete unknown files by their age."""
    changed = {change.key for change in draft.changes}
    for location, own in scene.own.items():
        if location != scene.place and own.held is not None and own.key not in changed:
            draft.put(Stage.FORWARD, own.key, own.held.body, own.held)


def _possible(changes: Iterable[Change], facts: Facts) -> tuple[Change, ...]:
    """Deletions only where the store was proven to delete on a condition; else what to write instead."""
    done: list[Change] = []
    for change in changes:
        if isinstance(change, Put) or facts.guarantees(change.key).conditional_delete:
            done.append(change)
        elif change.otherwise is not None:
            done.append(Put(change.stage, change.key, change.otherwise, change.replacing))
    return tuple(done)


def _verify(scene: Scene, changes: tuple[Change, ...]) -> None:
    """Memory may write, it may not skip; and a tag is older than the answer that is written over it."""
    if changes:
        scene.facts.require_look_after(scene.name, tuple(change.key for change in changes))
        return
    name = scene.name
    for location, own in scene.own.items():
        # What stands in the way may be at either of the two names.
        keys = Site(location).keys(Whose(name.namespace, name.name)) if own.obstacle is not None else [own.key]
        for key in (*keys, hintfile.key(location)):
            if scene.facts.file(key) is not None:
                scene.facts.require_read(key)
