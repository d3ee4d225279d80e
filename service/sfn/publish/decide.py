"""The decision of one publish, pure: from what the catalog said and what lies there to what is to be written.

`decide` returns a `Question` where it lacks something, a `Plan` where files must change, or an outcome where none must.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

from sfn.errors import LocationRefused
from sfn.pointer import hintfile
from sfn.pointer.document import Document
from sfn.pointer.location import canonical, checked
from sfn.pointer.naming import Whose
from sfn.pointer.site import Site
from sfn.publish.absence import settle_absent
from sfn.publish.aliases import find_aliases, tried
from sfn.publish.changes import Change, Draft, Plan, Put, Stage
from sfn.publish.commits import touch_commits
from sfn.publish.elsewhere import settle_elsewhere, withdraw
from sfn.publish.facts import Facts, Lacking, Question
from sfn.publish.heirs import find_heirs
from sfn.publish.hints import is_our_hint
from sfn.publish.inventory import Inventory, beside
from sfn.publish.obstacles import in_the_way
from sfn.publish.own import Own
from sfn.publish.pointing import needs_listing, point
from sfn.publish.policy import OnDrop, Policy
from sfn.publish.scene import Scene, hint_at
from sfn.publish.spelled import await_listing, listed_as, wake_listed
from sfn.publish.trust import await_table, await_unheard, hindrance, is_turned, keep_unheard
from sfn.publish.verdict import conclude, next_refresh, nothing_there, unwritten
from sfn.words import Claim, Dead, Done, Findings, Later, Missing, Reason, Table, TableName, Unwritten

_PATIENCE: Final = 5
"""Attempts that may fail on a place that a table left; then the table that took its name is published all the same."""

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
    site = policy.site(name, place) if place is not None else None
    refresh = claim.story.refresh_at is not None and now >= claim.story.refresh_at
    listed = claim.story.listed_as if isinstance(look.found, Missing) else None
    if table is not None and table.left_alone is None and policy.interest.covers(name) and not policy.retired:
        listed = listed_as(claim, facts, policy, name, table, refresh=refresh)
        if listed is None and (unlisted := await_listing(claim, facts, name)) is not None:
            return unlisted
        if listed not in {None, name}:
            table = place = site = None
    inventory = Inventory.of(claim, facts, policy, name)
    sites = {Site.of(text) for text in claim.locations} | ({site} if site is not None else set())
    owns = _owns(inventory, sites, table, site)
    aliases = find_aliases(claim, site, owns, facts)
    if aliases:
        sites = {aliases[one].site if one in aliases else one for one in sites}
        owns = _owns(inventory, sites, table, site)
    scene = Scene(claim, facts, policy, name, look, table, place, site, inventory, tuple(owns), aliases=aliases)
    scene = replace(scene, obstacle=refused if table is not None else None, listed_as=listed)
    # Where nobody can ask, that there is none says only that nothing is heard of it.
    left_out = (table is not None or policy.told) and not policy.interest.covers(name)
    if left_out or policy.retired or (table is not None and table.left_alone is not None):
        return _withdraw(scene, refresh=refresh, jitter=jitter)
    return _follow(scene, refresh=refresh, jitter=jitter)


def _owns(inventory: Inventory, sites: Iterable[Site], table: Table | None, place: Site | None) -> list[Own]:
    """Our files at some sites; `place` is where the table's belong."""
    ordered = sorted(sites, key=lambda one: one.text)
    return [own for one in ordered for own in inventory.at(one, table, is_place=one == place)]


def _follow(scene: Scene, *, refresh: bool, jitter: float) -> Plan | Done | Later | Dead:
    draft = Draft()
    table = scene.table
    await_unheard(scene, draft)
    if table is not None:
        stopped = hindrance(scene, table, draft) or _behind(scene, table, refresh=refresh, jitter=jitter)
        if isinstance(stopped, Dead):
            return _held(scene, stopped, refresh=refresh, jitter=jitter)
        if stopped is not None:
            return stopped
        scene = _with_obstacle(scene)
        if scene.site is not None and scene.obstacle is None:
            if needs_listing(scene, table, refresh=refresh):
                if scene.site.has_hint:
                    scene.facts.require_read(hintfile.key(scene.site.location))
                scene = replace(scene, siblings=beside(scene.inventory, scene.site))
            point(scene, table, draft, turned=is_turned(scene, table), refresh=refresh)
    else:
        await_table(scene, draft)
    wake_listed(scene, draft)
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


def _behind(scene: Scene, table: Table, *, refresh: bool, jitter: float) -> Plan | None:
    """What goes before a table takes the place of another one: older files that this row has of that one elsewhere.

    A publish died between two places. A reader whom some document leads to the older file would go back to what it says
    once the newer one is replaced.
    """
    here, policy = scene.here, scene.policy
    doc = here.doc if here is not None else None
    if scene.obstacle is not None or policy.on_drop is OnDrop.KEEP or scene.claim.attempt > _PATIENCE:
        return None
    if here is None or doc is None or not doc.live or doc.guid in {None, table.uuid}:
        return None
    if not any(_is_older(own, doc) for own in scene.owns if not scene.is_here(own)):
        return None
    draft = Draft()
    nowhere = settle_elsewhere(scene, find_heirs(scene, draft), draft)
    settle_absent(scene, nowhere, draft)
    if draft.dead is not None:
        return None
    draft.look_again(scene.look.answered + policy.pause, "an older file of the table that is replaced goes first")
    plan = _concluded(scene, draft, refresh=refresh, jitter=jitter)
    # Where nothing can be done about them now, they may stay for ever, and the new table must not wait for that.
    if not isinstance(plan, Plan) or not isinstance(plan.outcome, Later):
        return None
    # What was told of the new table is still to be followed.
    wish = replace(plan.outcome.wish, floor=scene.claim.wish.floor)
    return replace(plan, outcome=replace(plan.outcome, wish=wish))


def _is_older(own: Own, newest: Document) -> bool:
    doc = own.doc
    if doc is None or not doc.live or (doc.guid, doc.catalog_id) != (newest.guid, newest.catalog_id):
        return False
    return canonical(doc.metadata_file_path) != canonical(newest.metadata_file_path)


def _held(scene: Scene, dead: Dead, *, refresh: bool, jitter: float) -> Plan | Dead:
    """A row that waits for an operator: its files stay as they are, and young enough for cleaners to leave them."""
    story = dead.findings.story if dead.findings is not None else scene.claim.story
    if refresh or story.refresh_at is None:
        story = replace(story, refresh_at=next_refresh(scene.look, scene.policy, jitter))
    draft = Draft()
    if refresh:
        _touch(scene, draft)
    for location in {own.site.location for own in scene.owns if own.site.has_hint} if refresh else ():
        hint = hint_at(scene.facts, location)
        if hint is not None and is_our_hint(scene, location, hint):
            draft.put(Stage.HINT, hintfile.key(location), hint.body, hint)
    changes = draft.ordered()
    dead = replace(dead, findings=Findings(story), look_at=story.refresh_at)
    if not changes:
        return dead
    _verify(scene, changes)
    return _plan(scene, draft, changes, dead)


def _withdraw(scene: Scene, *, refresh: bool, jitter: float) -> Plan | Done | Later | Dead:
    """A table that gets no files (any more): ours go."""
    draft = Draft()
    scene = replace(scene, table=None, place=None, site=None)
    keep_unheard(scene, draft)
    if not scene.documents:
        return nothing_there(scene, draft)
    if draft.unheard:
        draft.look_again(scene.look.answered + scene.policy.refresh_after, "what was told means nothing yet")
    for own in scene.owns:
        withdraw(scene, own, draft)
    if refresh:
        _touch(scene, draft)
    return _concluded(scene, draft, refresh=refresh, jitter=jitter)


def _concluded(scene: Scene, draft: Draft, *, refresh: bool, jitter: float) -> Plan | Done | Later | Dead:
    changes = _possible(draft.ordered(), scene.facts)
    _verify(scene, changes)
    outcome = conclude(scene, draft, changes, refresh=refresh, jitter=jitter)
    return _plan(scene, draft, changes, outcome) if changes else outcome


def _plan(scene: Scene, draft: Draft, changes: tuple[Change, ...], outcome: Done | Later | Dead) -> Plan:
    pairs = tuple((alias.key, alias.other) for alias in tried(scene.aliases, changes).values())
    return Plan(changes, outcome, pairs, draft.unchanged)


def _with_obstacle(scene: Scene) -> Scene:
    """The scene with what stands in the way at the table's place, if anything does."""
    own = scene.here
    if own is None or own.obstacle is None:
        return scene
    return replace(scene, obstacle=in_the_way(own, scene.name))


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
    for file in (file for own in scene.owns for file in own.files):
        if file.key not in changed:
            draft.put(Stage.FORWARD, file.key, file.held.body, file.held)
    for own in scene.owns:
        touch_commits(scene, own, draft)


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
    for alias in scene.aliases.values():
        scene.facts.require_read(alias.other)
    for own in scene.owns:
        guid = scene.table.uuid if scene.table is not None else None
        # What stands in the way may be at either of the two names.
        keys = own.site.keys(Whose(name.namespace, name.name, guid)) if own.obstacle is not None else [own.key]
        hints = [hintfile.key(own.site.location)] if own.site.has_hint else []
        for key in (*keys, *(file.key for file in own.files), *hints):
            if scene.facts.file(key) is not None:
                scene.facts.require_read(key)
