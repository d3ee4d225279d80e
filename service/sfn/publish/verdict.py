"""What a publish settles as: when to look again, and what is known from now on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from sfn.pointer import hearsay, hintfile
from sfn.pointer.document import Document, State, parse
from sfn.pointer.location import canonical
from sfn.pointer.retention import is_short_lived
from sfn.pointer.site import Site, location_of
from sfn.publish.aliases import known_twice, tried
from sfn.publish.changes import Change, Draft, Put, Stage
from sfn.publish.facts import Look
from sfn.publish.own import Own
from sfn.publish.policy import Policy
from sfn.publish.scene import Scene
from sfn.words import Ask, Claim, Dead, Done, Findings, Later, Memo, Published, Reason, Story, TableName, Told, Wish


def conclude(
    scene: Scene, draft: Draft, changes: tuple[Change, ...], *, refresh: bool, jitter: float
) -> Done | Later | Dead:
    """The outcome once all changes are made."""
    after = _documents_after(scene, changes)
    story = _story(scene, draft, changes, after, refresh=refresh, jitter=jitter)
    findings = Findings(
        story=story,
        asks=(*draft.asks, *_unheard_of(scene)),
        stirs=frozenset(draft.stirs | _left_or_joined(scene, story)),
        left=_left(scene, after, changes),
    )
    if draft.looks:
        at, why = min(draft.looks)
        outlasts = any(later > at for later, _ in draft.looks)
        wish = scene.claim.wish if outlasts else replace(scene.claim.wish, floor=None)
        mine = _is_still_the_one(scene.claim.story, story)
        wish = replace(wish, drop=wish.drop and mine, purge=scene.purged and mine)
        wish = replace(wish, looked_again=wish.looked_again or draft.echo)
        wish = replace(wish, tellings=draft.unheard)
        return Later(at, why, wish, findings)
    ends = _expiries(after.values(), scene.look.answered)
    due = min([story.refresh_at or scene.look.answered, *ends])
    obstacle = scene.obstacle or draft.lost
    if obstacle is not None:
        return replace(obstacle, findings=findings, look_at=due)
    return Done(due if after else scene.look.answered, findings)


def _is_still_the_one(before: Story, now: Story) -> bool:
    """Whether a drop that was told of may yet be of what is there: it is over once another table has the name."""
    was, live = before.live, now.live
    return live is None or (was is not None and was.uuid == live.uuid)


def nothing_there(scene: Scene, draft: Draft) -> Done | Later | Dead:
    """Neither a table nor a file of ours: a typo, or all of it has expired."""
    for own in scene.owns:
        scene.facts.require_read(own.key)
    for site in map(Site.of, scene.claim.locations):
        if site.naming.is_by_guid:
            scene.facts.folder(site.folder)
    policy, story, answered = scene.policy, scene.claim.story, scene.look.answered
    told = _told(scene)
    # What was told of a name is remembered too, longer than an event can be late; and where its table is for as long as
    # it has none of our files: nobody could tell it again.
    remembers = bool(scene.claim.locations) or told is not None or bool(draft.unheard)
    lives = told is not None and hearsay.current(told) is not None
    patience = policy.expire_after // policy.refresh_after + 1
    places = frozenset(location_of(text) for text in scene.claim.locations)
    stirs = places if story.misses == 0 else frozenset()
    misses = 1 if scene.claim.wish.tellings and not draft.unheard else story.misses + 1
    if scene.other_name is not None:
        return _other_spelling(scene, draft, scene.other_name)
    nothing = replace(story, live=None, foreign_hint=None, renamed_to=None, foreign_id=None)
    story = replace(nothing, misses=misses, told=told)
    findings = Findings(story, asks=tuple(draft.asks), stirs=stirs)
    wish = replace(scene.claim.wish, tellings=draft.unheard)
    why = "neither a table nor a file of ours"
    if draft.unheard and draft.looks:
        return Later(*min(draft.looks), replace(wish, looked_again=True), findings)
    if draft.lost is not None:
        return replace(draft.lost, findings=findings, look_at=answered + policy.refresh_after)
    if draft.echo:
        return Later(*min(draft.looks), replace(wish, looked_again=True), findings)
    if story.misses == 1 and not story.visited:
        return Later(answered + policy.replica_lag, why, wish, findings)
    if lives or (story.misses <= patience + 1 and remembers):
        return Later(answered + policy.refresh_after, why, wish, findings)
    return Done(answered, Findings(asks=tuple(draft.asks), stirs=places), forget=True)


def _other_spelling(scene: Scene, draft: Draft, listed: TableName) -> Later | Done:
    """A name that the catalog takes and does not list: remembered for as long as a tombstone would stay.

    The first time it is looked at again soon: the listing may come from a replica that lags.
    """
    story, policy, answered = scene.claim.story, scene.policy, scene.look.answered
    is_new, has_news = story.listed_as != listed, scene.claim.wish != Wish()
    misses = 1 if is_new or has_news else story.misses + 1
    story = replace(story, live=None, absent={}, held=False, misses=misses, listed_as=listed)
    findings = Findings(story, asks=tuple(draft.asks))
    if misses > policy.expire_after // policy.refresh_after + 1:
        return Done(answered, Findings(asks=tuple(draft.asks)), forget=True)
    at = answered + (policy.replica_lag if is_new else policy.refresh_after)
    return Later(at, f"another spelling of {listed}, which has the files", findings=findings)


def _told(scene: Scene) -> Told | None:
    """What is known of the name's tables in a catalog that can't be asked."""
    heard = scene.look.heard
    return heard.told if heard is not None and heard.told != Told() else scene.claim.story.told


def unwritten(claim: Claim, look: Look, policy: Policy, jitter: float) -> Done:
    """A staged create: nothing to say yet, and nobody is absent."""
    story = replace(claim.story, absent={}, refresh_at=next_refresh(look, policy, jitter))
    return Done(look.answered + policy.refresh_after, Findings(story, Memo()))


def next_refresh(look: Look, policy: Policy, jitter: float) -> datetime:
    """When files that were written now must be written again; `jitter` in [0, 1) spreads the tables."""
    return look.answered + policy.refresh_after * (1 - jitter / 4)


def _story(
    scene: Scene,
    draft: Draft,
    changes: tuple[Change, ...],
    after: Mapping[str, Document],
    *,
    refresh: bool,
    jitter: float,
) -> Story:
    before = scene.claim.story
    followed = scene.table is not None and scene.obstacle is None
    stepped = followed or not draft.looks
    renew = refresh or before.refresh_at is None
    return replace(
        before,
        live=_live(scene, after),
        visited=True,
        absent=dict(draft.absent),
        held=before.held and not stepped,
        waived=before.waived and not stepped,
        hints=_hints(scene, changes),
        foreign_hint=draft.foreign_hint,
        renamed_to=_renamed_to(scene, after),
        refresh_at=next_refresh(scene.look, scene.policy, jitter) if renew else before.refresh_at,
        misses=0,
        told=_told(scene),
        foreign_id=_foreign_id(scene),
        listed_as=scene.listed_as,
        short_lived=is_short_lived(scene.table) if scene.table is not None else before.short_lived,
        older_at=draft.older_at,
    )


def _left(scene: Scene, after: Mapping[str, Document], changes: tuple[Change, ...]) -> frozenset[str]:
    """Places that can be forgotten: a tombstone of ours expired there, or the row knows the place by another name.

    Where a live file was deleted the place is looked at for as long as a tombstone would have stayed: a writer that
    slept meanwhile may still create the file.
    """
    owns: dict[str, list[Own]] = {}
    for own in scene.owns:
        owns.setdefault(own.site.text, []).append(own)
    left = {
        text
        for text, there in owns.items()
        if (files := [file for own in there for file in own.files])
        and not any(own.doc is not None and own.doc.live for own in there)
        and not any(file.key in after for file in files)
    }
    return frozenset(left | known_twice(scene.claim, scene.site, tried(scene.aliases, changes), left))


def _documents_after(scene: Scene, changes: tuple[Change, ...]) -> dict[str, Document]:
    """Our documents by key once the changes are made, but for those of single commits."""
    after = {file.key: file.doc for own in scene.owns for file in own.files}
    for change in changes:
        is_lead = change.key in {own.key for own in scene.owns}
        if isinstance(change, Put) and (is_lead or change.stage is Stage.BRANCH or change.key in after):
            after[change.key] = parse(change.body)
        elif not isinstance(change, Put):
            after.pop(change.key, None)
    return after


def _live(scene: Scene, after: Mapping[str, Document]) -> Published | None:
    """The table's own, or else what was before: it is of that one that a drop is told.

    Of several files of it the newest: a publish may have died between the new place of a table and the old one. Two
    rows that each know the other by its older file would wait for one another for ever.
    """
    before = scene.claim.story.live

    def preference(found: tuple[Own, Document]) -> tuple[bool, bool, datetime]:
        own, doc = found
        was = before is not None and doc.guid == before.uuid
        return scene.is_here(own), was, doc.as_of

    live = [(own, doc) for own in scene.owns if (doc := after.get(own.key)) is not None and doc.live]
    if not live:
        return None
    own, doc = max(live, key=preference)
    return Published(doc.metadata_file_path, doc.guid, own.site.location, doc.written_at, doc.catalog_id)


def _foreign_id(scene: Scene) -> str | None:
    here = scene.here
    if here is None or here.found is None or here.obstacle is not Reason.FOREIGN_CATALOG:
        return None
    return here.found.catalog_id


def _renamed_to(scene: Scene, after: Mapping[str, Document]) -> TableName | None:
    """What the newest of our documents says, where it is of a table that was renamed."""
    doc = max(after.values(), key=lambda doc: (doc.live, doc.ordinal), default=None)
    if doc is None or doc.state is not State.RENAMED or doc.moved_to is None:
        return None
    return TableName(scene.name.catalog, doc.moved_to.namespace, doc.moved_to.name)


def _hints(scene: Scene, changes: tuple[Change, ...]) -> dict[str, tuple[str, ...]]:
    """What the hints that we wrote say."""
    hints = dict(scene.claim.story.hints)
    for location in {own.site.location for own in scene.owns if own.site.has_hint}:
        for change in changes:
            if change.key == hintfile.key(location):
                written = isinstance(change, Put) and change.stage is Stage.HINT
                hints.pop(location, None)
                if written and isinstance(change, Put):
                    hints[location] = (change.body.decode(),)
    return hints


def _left_or_joined(scene: Scene, story: Story) -> set[str]:
    """Locations where this row's table came to live or ceased to: who shares them must look again.

    Where nothing is remembered the last publish did not settle, if there was one, and may have changed any of them.
    """
    before, now = scene.claim.story.live, story.live
    was = (before.uuid, before.location) if before is not None else None
    is_now = (now.uuid, now.location) if now is not None else None
    if scene.claim.memo == Memo():
        places = {own.site.location for own in scene.owns}
    else:
        places = {place[1] for place in (was, is_now) if place is not None and was != is_now}
    if now is None or (before is not None and before.uuid == now.uuid):
        return places
    return places | _places_before(scene)


def _places_before(scene: Scene) -> set[str]:
    """Where the table was by its log: under another name it may have left a file there that says it is gone."""
    log = scene.table.metadata_log if scene.table is not None else ()
    # No file of ours is in a folder that is called otherwise; NUL is no text to PostgreSQL.
    folders = {entry.rpartition("/")[0] for entry in log if entry.isprintable()}
    return {canonical(folder.removesuffix("/metadata")) for folder in folders if folder.endswith("/metadata")}


def _unheard_of(scene: Scene) -> list[Ask]:
    """Our documents of other names in the same folder: after a lost inbox, a row for them may be missing."""
    return [
        Ask(TableName(scene.name.catalog, doc.namespace, doc.name), scene.site.text if scene.site is not None else None)
        for doc in scene.siblings
        if doc.catalog_id == scene.policy.catalog_id
    ]


def _expiries(documents: Iterable[Document], now: datetime) -> list[datetime]:
    """When tombstones expire that did not yet; those that stay because the store can't delete safely need no look."""
    times = [doc.expires_at for doc in documents if doc.expires_at is not None and not doc.live]
    return [at for at in times if at > now]
