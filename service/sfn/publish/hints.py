"""The version hint: whether it is ours, and when it must not speak any more (specification, section 6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sfn.pointer import hintfile
from sfn.pointer.document import Document
from sfn.pointer.naming import Whose
from sfn.pointer.site import Site
from sfn.publish.aliases import counterpart
from sfn.publish.changes import Draft, Stage
from sfn.publish.facts import WhoIsAt
from sfn.publish.inventory import beside, is_named
from sfn.publish.own import Own
from sfn.publish.scene import Scene, hint_at
from sfn.words import Ask, Held, TableName


def is_silent(hint: Held | None) -> bool:
    """Whether it names nothing."""
    return hint is None or hintfile.is_withdrawn(hint.body)


def is_our_hint(scene: Scene, location: str, hint: Held | None) -> bool:
    """Whether the hint at a location is provably ours to replace or delete; one that is not there is."""
    if hint is None or hintfile.is_withdrawn(hint.body):
        return True
    said = hint.body.decode(errors="replace")
    if said in scene.claim.story.hints.get(location, ()):
        return True
    here = scene.siblings if scene.site is not None and location == scene.site.location else ()
    if said in set(spoken(doc for doc in here if doc.live and doc.catalog_id != scene.policy.catalog_id)):
        return False
    own = [file.doc for one in scene.at(location) for file in one.files]
    beside = [doc for doc in here if doc.catalog_id == scene.policy.catalog_id]
    if said in set(written([*beside, *own])):
        return True
    if scene.table is None or hintfile.is_numbered(said) or all(doc.guid != scene.table.uuid for doc in own):
        return False
    return any(said in hintfile.spellings(entry) for entry in scene.table.metadata_log)


def spoken(docs: Iterable[Document]) -> Iterable[str]:
    """What a hint beside these documents may say: what they name, and what they replaced."""
    for doc in docs:
        yield from hintfile.spellings(doc.metadata_file_path)
        yield from doc.hint_was


def written(docs: Iterable[Document]) -> Iterable[str]:
    """What a hint beside our documents says by our hand.

    That a document names `v2.metadata.json` is no proof that a `2` is ours: whoever wrote that file keeps a hint too.
    """
    for doc in docs:
        for text in hintfile.spellings(doc.metadata_file_path):
            if not hintfile.is_numbered(text):
                yield text
        yield from doc.hint_was


def withdrawal(scene: Scene, hint: Held, *, again: bool) -> bytes | None:
    """What to write over a hint that can't be deleted; None to leave it.

    One that says nothing already gets a new text the first time: it may be a placeholder that its writer still means to
    fill.
    """
    if again and hintfile.is_withdrawn(hint.body):
        return None
    return hintfile.withdrawn(f"{scene.look.answered:%Y%m%dT%H%M%S%f}-{scene.claim.token}")


def silence_hint(scene: Scene, own: Own, draft: Draft, *, again: bool = False) -> None:
    """Delete the hint at a location where this row's table is no more, if it is ours.

    Not where it speaks for a table that lives there under another name, be it the same table, or for another catalog's:
    two that have registered one metadata file have the same hint.

    Args:
        own: our files there.
        again: this was done before, so a hint that says nothing already may stay as it is.
    """
    location = own.site.location
    is_still_there = scene.site is not None and scene.obstacle is None and scene.site.location == location
    hint = hint_at(scene.facts, location) if own.site.has_hint and not is_still_there else None
    if hint is None or own.doc is None or not is_our_hint(scene, location, hint):
        return
    others = scene.facts.names(WhoIsAt(location))
    if hintfile.is_withdrawn(hint.body):
        draft.ask(Ask(name) for name in others)
    sites = tuple(dict.fromkeys((own.site, Site(location, scene.policy.naming, scene.policy.placement))))
    guid = own.doc.guid
    is_spoken = any(_speaks_for(scene, name, site, guid, hint) for name in others for site in sites)
    if not is_spoken and not any(_is_said(scene, site, guid, hint) for site in sites):
        _rest_on(scene, own, draft)
        draft.remove(Stage.SILENCE, hintfile.key(location), hint, otherwise=withdrawal(scene, hint, again=again))


def _rest_on(scene: Scene, own: Own, draft: Draft) -> None:
    """Have it seen that our files' place is none of another name of the table's: that one's hint must stay.

    What is only remembered of a file does not tell what was written by its other name since.
    """
    if scene.site is None or not scene.site.has_hint or own.lead is None:
        return
    for key in (own.lead.key, counterpart(own, own.lead.key, scene.site.location)):
        scene.facts.require_read(key)
    draft.unchanged = (*draft.unchanged, own.lead.key)


def _speaks_for(scene: Scene, name: TableName, site: Site, guid: str | None, hint: Held) -> bool:
    """Whether a hint is what another row's live file there says, or will replace."""
    for key in site.keys(Whose(name.namespace, name.name, guid)):
        scene.facts.require_read(key)
    doc = replace(scene.inventory, name=name, remembered=frozenset()).slot(site, guid).doc
    # By the uuid its file may be the one that is ours yet.
    if doc is None or not doc.live or not is_named(doc, name):
        return False
    return _keeps(doc, guid, hint)


def _is_said(scene: Scene, site: Site, guid: str | None, hint: Held) -> bool:
    """Whether any live file beside ours says what the hint says, or will replace it."""
    return any(doc.live and _keeps(doc, guid, hint) for doc in beside(scene.inventory, site))


def _keeps(doc: Document, guid: str | None, hint: Held) -> bool:
    """Whether a hint beside a live document must stay when the table of a uuid leaves.

    The same table under another name replaces what it said before. Another table's document lists our hint only because
    it found it there: if that kept the hint, and ours kept it too, two that leave at once would leave it behind.
    """
    said = hint.body.decode(errors="replace")
    return said in set(hintfile.spellings(doc.metadata_file_path)) or (doc.guid == guid and said in doc.hint_was)
