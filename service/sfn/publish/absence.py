"""When a table counts as dropped (specification, section 4, "Absent")."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from sfn.pointer import hintfile
from sfn.pointer.location import canonical
from sfn.pointer.naming import MAIN
from sfn.publish.changes import Draft
from sfn.publish.elsewhere import drop
from sfn.publish.facts import IsListed, MayStep
from sfn.publish.inventory import beside
from sfn.publish.older import older_files, older_first, written_at
from sfn.publish.own import Own
from sfn.publish.policy import OnDrop
from sfn.publish.scene import Scene
from sfn.words import Ask, Backward, Dead, Reason, Step, Table, TableName


def settle_absent(scene: Scene, nowhere: Mapping[str, list[Own]], draft: Draft) -> None:
    """Give up the files of tables that are nowhere any more, once every test for it has been passed."""
    if not nowhere or scene.policy.on_drop is OnDrop.KEEP:
        return
    held = scene.claim.story.held and not scene.claim.story.waived
    if held and not scene.is_answered:
        known = scene.claim.story.absent
        draft.absent.update({uuid: known.get(uuid, scene.look.answered) for uuid in nowhere})
        draft.dead = _held(scene, draft.absent)
        return
    for uuid, owns in nowhere.items():
        if _is_certain(scene, uuid, owns, draft):
            if not _brake_allows(scene, uuid, owns):
                draft.dead = _held(scene, draft.absent)
                return
            for own in owns:
                delete = scene.policy.on_drop is OnDrop.DELETE or _is_purged(scene, own)
                drop(scene, own, draft, delete=delete)


def _is_certain(scene: Scene, uuid: str, owns: list[Own], draft: Draft) -> bool:
    policy, look = scene.policy, scene.look
    written = written_at(owns)
    older = older_files(scene, uuid, owns) if uuid else []
    if older:
        draft.wait_for(older, *older_first(scene))
        return False
    if _hides_older(scene, owns, draft):
        draft.look_again(*older_first(scene))
        return False
    if look.asked - written < policy.replica_lag:
        draft.look_again(written + policy.replica_lag, "the answer may be older than what is held")
        return False
    if (heir := _heir_beside(scene, uuid, owns)) is not None:
        draft.ask([heir])
        draft.look_again(look.answered + policy.pause, f"{heir.table} has this table, and must say so first")
        return False
    if not scene.is_answered and scene.facts.holds(IsListed(scene.name)):
        draft.look_again(look.answered + policy.long_pause, "not found, and yet the namespace lists it")
        return False
    return _was_absent_long_enough(scene, uuid, draft)


def _hides_older(scene: Scene, owns: list[Own], draft: Draft) -> bool:
    """Whether an older table of the name would be what readers find by it, once these files are none any more.

    Each of them has its own file where files are called by the uuid.
    """
    goes = {change.key for change in draft.changes}
    newest = {own.site: own.doc.as_of for own in owns if own.doc is not None and own.site.naming.is_by_guid}
    return any(
        other.doc is not None and other.doc.live and other.key not in goes and other.doc.as_of < newest[other.site]
        for other in scene.owns
        if other not in owns and other.site in newest
    )


def _heir_beside(scene: Scene, uuid: str, owns: list[Own]) -> Ask | None:
    """Who has the table by the catalog's word, and by a file beside these.

    What a row publishes is known to the others once it has settled, and a sweep does not wait for those that it finds.
    """
    catalog_id = scene.policy.catalog_id
    for own in owns if uuid else ():
        for doc in beside(scene.inventory, own.site):
            if doc.live and doc.ref == MAIN and (doc.guid, doc.catalog_id) == (uuid, catalog_id):
                name = TableName(scene.name.catalog, doc.namespace, doc.name)
                found = scene.facts.look(name).found if scene.policy.interest.covers(name) else None
                if isinstance(found, Table) and found.uuid == uuid and found.left_alone is None:
                    return Ask(name, own.site.text)
    return None


def _was_absent_long_enough(scene: Scene, uuid: str, draft: Draft) -> bool:
    policy, look, live = scene.policy, scene.look, scene.claim.story.live
    # It was told of the name: what it says of a table that was last published under it, it does not say of others.
    drop = scene.claim.wish.drop and live is not None and live.uuid == (uuid or None)
    # What nobody can ask is missing only where that was told.
    was_told = drop or policy.told
    wait = policy.replica_lag if was_told else max(policy.absence_delay, policy.replica_lag)
    since = scene.claim.story.absent.get(uuid)
    draft.absent[uuid] = since or look.answered
    if since is None or look.asked < since + wait:
        draft.look_again((since or look.answered) + wait, "absent: looked at once more before it counts as dropped")
        return False
    swept = scene.claim.swept_at
    if policy.swept and not drop and (swept is None or swept < since):
        pause = max(policy.sweep_every / 4, timedelta(seconds=1))
        draft.look_again(look.answered + pause, "absent: a sweep must come first, it finds a table that was renamed")
        return False
    return True


def _brake_allows(scene: Scene, uuid: str, owns: list[Own]) -> bool:
    if scene.is_answered or scene.claim.story.waived:
        return True
    doc = owns[-1].doc
    pointer = doc.metadata_file_path if doc is not None else ""
    return scene.facts.holds(MayStep(Step(Backward.DROP, uuid, pointer)))


def _is_purged(scene: Scene, own: Own) -> bool:
    doc, location = own.doc, own.site.location
    if doc is None or canonical(doc.metadata_file_path.rpartition("/")[0]) != f"{location}/metadata":
        # Where the metadata lies in another folder nothing can be told from this one, and the event is believed.
        return scene.purged
    # Else it is not: a late one may be of a table that had the name before. Where files are left a tombstone is too.
    return set(scene.facts.folder(f"{location}/metadata/")) <= {hintfile.key(location)}


def _held(scene: Scene, absent: Mapping[str, datetime]) -> Dead:
    catalog = scene.name.catalog
    since = min(absent.values(), default=scene.look.answered)
    return Dead(
        Reason.HELD_DROP,
        f"{scene.name} is missing from the catalog since {since:%F %H:%M:%S} UTC, and more tables of {catalog} than "
        "the limit allows: its files stay as they were. `sfn status` says how many. If the catalog lost its tables, "
        f"restore them: the next sweep closes this letter. If they were dropped on purpose: sfn release {catalog}",
    )
