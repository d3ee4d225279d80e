"""Older files of a table go before its newest: without that one a reader of the directory would go back to them."""

from __future__ import annotations

from datetime import datetime

from sfn.publish.policy import OnDrop
from sfn.publish.scene import Scene, beside
from sfn.words import Ask, TableName


def older_files(scene: Scene, uuid: str, locations: list[str]) -> list[Ask]:
    """Rows whose file names an older pointer of the table; none where files of dropped tables stay.

    Those that have settled are known; one that died before it could is found by its file. Who knows of its file is not
    woken: it looks of its own accord, and two that wake one another never rest.

    Args:
        uuid: a table that our live files at these locations name.
    """
    if scene.policy.on_drop is OnDrop.KEEP:
        return []
    written = written_at(scene, locations)
    others = scene.facts.others_with(uuid, scene.name)
    known = [Ask(row.table, live.location) for row, live in others if live.written_at < written and not row.is_stuck]
    found = [
        Ask(TableName(scene.name.catalog, doc.namespace, doc.name), location)
        for location in locations
        if (mine := scene.own[location].doc) is not None
        for doc in beside(scene.facts, scene.name, scene.policy, location)
        if doc.live and doc.guid == uuid and doc.catalog_id == mine.catalog_id and doc.as_of < mine.as_of
    ]
    return list(dict.fromkeys([*known, *found]))


def older_first(scene: Scene) -> tuple[datetime, str]:
    """When to look again at what makes room for `older_files`, and why: these mostly wait for an absence."""
    return scene.look.answered + scene.policy.long_pause, "a row with an older file of the same table goes first"


def written_at(scene: Scene, locations: list[str]) -> datetime:
    """When the youngest of our documents at these locations was written."""
    return max(doc.written_at for location in locations if (doc := scene.own[location].doc) is not None)
