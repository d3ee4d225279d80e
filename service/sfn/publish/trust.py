"""Whether an answer of the catalog is followed now (specification, section 4): it may come from a replica that lags."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from sfn.pointer.lineage import Relation, reaches, relate
from sfn.pointer.location import canonical
from sfn.pointer.naming import MAIN
from sfn.publish.changes import Draft, places_of
from sfn.publish.facts import MayStep
from sfn.publish.inventory import beside, is_named
from sfn.publish.older import left_behind, older_files, older_first
from sfn.publish.own import Own
from sfn.publish.scene import Scene
from sfn.words import Ask, Backward, Dead, Findings, Later, Reason, Step, Story, Table, TableName


def hindrance(scene: Scene, table: Table, draft: Draft) -> Later | Dead | None:
    """Why the catalog's answer is not followed now, if it is not; else what must be looked at once more."""
    relation = _relation(scene, table)
    look, policy, claim = scene.look, scene.policy, scene.claim
    trusted_at = _trusted_at(scene, table, relation)
    if look.asked < trusted_at:
        return Later(trusted_at, "the answer may be older than what is held", claim.wish, Findings(claim.story))
    if relation is Relation.OLDER and not _may_step_back(scene, table):
        detail = f"{scene.name} stepped back to {table.metadata_location}, and the brake is on; release it to follow"
        return Dead(Reason.HELD_DROP, detail, Findings(replace(claim.story, held=True)))
    if scene.here is None or scene.here.obstacle is not None:
        return _seeming_twin(scene, table)
    older = _older_than_replaced(scene, table) + _older_of_the_name(scene, scene.here)
    if older:
        story = replace(_as_seen(scene), older_at=places_of(older))
        return Later(*older_first(scene), claim.wish, Findings(story, asks=older))
    if is_turned(scene, table):
        draft.look_again(look.answered + policy.replica_lag, "the order of the pointers is unknown or turned")
    # What nobody can ask is made of all that was told by now: no event is ahead of it.
    if policy.told:
        return None
    if claim.wish.floor is not None and not reaches(table.metadata_location, table.metadata_log, claim.wish.floor):
        draft.look_again(look.answered + policy.replica_lag, "an event told of a pointer that the catalog did not show")
    if _is_echo(scene, table) and policy.replica_lag > timedelta(0):
        draft.echo = True
        draft.look_again(look.answered + policy.replica_lag, "nothing new was found: a replica may lag")
    return None


def await_table(scene: Scene, draft: Draft) -> None:
    """An event told of a table, and the answer shows none: look once more, unless events are all that it is made of.

    Where another one told of its end nobody knows which came first: it may be there again.
    """
    wish, lag = scene.claim.wish, scene.policy.replica_lag
    told = (wish.floor is not None or wish.vague) and scene.other_name is None
    if told and not scene.policy.told and not wish.looked_again and lag > timedelta(0):
        draft.echo = True
        draft.look_again(scene.look.answered + lag, "an event told of a table that the catalog did not show")


def await_unheard(scene: Scene, draft: Draft) -> None:
    """Of what was told some means nothing yet: look again, ever less often, and give up at last. All else goes on."""
    look, policy = scene.look, scene.policy
    for one in look.heard.unheard if look.heard is not None else ():
        since = one.telling.missed_at or look.answered
        waited = look.answered - since
        if one.reason is None and waited < policy.refresh_after:
            draft.look_again(look.answered + max(policy.pause, waited / 2), one.detail)
        else:
            draft.lost = Dead(one.reason or Reason.EXHAUSTED, one.detail)
        draft.unheard += (replace(one.telling, missed_at=since),)


def keep_unheard(scene: Scene, draft: Draft) -> None:
    """What was told of a table without files and means nothing yet stays told, but nobody is bothered with it."""
    heard = scene.look.heard
    draft.unheard = tuple(one.telling for one in heard.unheard) if heard is not None else ()


def _trusted_at(scene: Scene, table: Table, relation: Relation | None) -> datetime:
    """From when on an answer is followed that steps back, or over a step back: replicas may not have heard before.

    What the table's files say under its other names counts too: the answer may be of before it was renamed.
    """
    head = scene.head
    heard = []
    if head is not None and (_is_backward(scene, table) or (head.turned and relation is not Relation.SAME)):
        heard.append(head.written_at)
    if relation is not Relation.SAME and table.uuid is not None:
        heard += [
            live.written_at
            for _, live in scene.facts.others_with(table.uuid, scene.name)
            if relate(live.pointer, (), table.metadata_location, table.metadata_log)
            in {Relation.OLDER, Relation.UNKNOWN}
        ]
    return max(heard, default=scene.look.asked - scene.policy.replica_lag) + scene.policy.replica_lag


def _older_than_replaced(scene: Scene, table: Table) -> tuple[Ask, ...]:
    """Rows with older files of the table whose file makes room for another's, see `older_files` and `left_behind`."""
    here = scene.here
    doc = here.doc if here is not None else None
    if here is None or doc is None or doc.guid is None or doc.guid == table.uuid:
        return ()
    return tuple(older_files(scene, doc.guid, [here], is_gone=False) if doc.live else left_behind(scene, here))


def _older_of_the_name(scene: Scene, here: Own) -> tuple[Ask, ...]:
    """The row from which a file is taken over, while an older file there has that name too.

    Without this one, whoever asks for the table by that name would go back to the older.
    """
    doc = here.doc
    if doc is None or not doc.live or is_named(doc, scene.name):
        return ()
    name = TableName(scene.name.catalog, doc.namespace, doc.name)
    stuck = [row.table for row, _ in scene.facts.others_with(doc.guid or "", scene.name) if row.is_stuck]
    older = (
        other.live
        and other.ref == MAIN
        and is_named(other, name)
        and other.catalog_id == doc.catalog_id
        and other.as_of < doc.as_of
        for other in beside(scene.inventory, here.site)
    )
    return (Ask(name, here.site.text),) if name not in stuck and any(older) else ()


def _seeming_twin(scene: Scene, table: Table) -> Later | None:
    """Another name has the table's file and, as far as the catalog says, the table. A replica may lag behind a rename,
    so that counts only if it is still said later.
    """
    found, wish = scene.here.found if scene.here is not None else None, scene.claim.wish
    if found is None or wish.looked_again or (found.guid, found.catalog_id) != (table.uuid, scene.policy.catalog_id):
        return None
    twin = TableName(scene.name.catalog, found.namespace, found.name)
    if twin == scene.name:
        return None
    at, why = scene.look.answered + scene.policy.pause, f"{twin} seems to be the same table: looked at once more"
    return Later(at, why, replace(wish, looked_again=True), Findings(scene.claim.story, asks=(Ask(twin),)))


def _as_seen(scene: Scene) -> Story:
    """What is known, with what the file says that a publish wrote and did not live to settle.

    Two rows that each take the other's file for the older one would else wait for one another for ever.
    """
    story, here = scene.claim.story, scene.here
    doc = here.doc if here is not None else None
    if story.live is None or here is None or doc is None:
        return story
    if (doc.guid, here.site.location) != (story.live.uuid, story.live.location):
        return story
    seen = replace(story.live, pointer=doc.metadata_file_path, written_at=doc.written_at)
    return replace(story, live=seen)


def _relation(scene: Scene, table: Table) -> Relation | None:
    head = scene.head
    if head is None or not head.live or head.guid != table.uuid:
        return None
    memo = scene.claim.memo.table
    log = memo.metadata_log if memo is not None and memo.metadata_location == head.metadata_file_path else ()
    return relate(head.metadata_file_path, log, table.metadata_location, table.metadata_log)


def _is_backward(scene: Scene, table: Table) -> bool:
    """An older pointer, another uuid, an undrop."""
    if scene.head is None:
        return False
    return _relation(scene, table) in {None, Relation.OLDER}


def is_turned(scene: Scene, table: Table) -> bool:
    """A step that is not known to be forward: what was left by it may be answered once more."""
    return _is_backward(scene, table) or _relation(scene, table) is Relation.UNKNOWN


def _may_step_back(scene: Scene, table: Table) -> bool:
    story = scene.claim.story
    if story.waived:
        return True
    return not story.held and scene.facts.holds(MayStep(Step(Backward.OLDER, table.uuid, table.metadata_location)))


def _is_echo(scene: Scene, table: Table) -> bool:
    """A hint that the answer does not show at all: it may come from a replica that has not heard yet.

    After a lost race what is held may be what this very publish wrote, and that it shows the event tells nothing.
    """
    wish, head = scene.claim.wish, scene.head
    if wish.looked_again or head is None or not head.live or scene.facts.relist:
        return False
    if wish.drop or wish.renamed_to is not None:
        return head.guid == table.uuid
    return wish.vague and canonical(head.metadata_file_path) == canonical(table.metadata_location)
