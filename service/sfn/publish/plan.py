"""The plan of a publish: the files at the table's own place, and the outcome once all changes are made.

The files are the SFN documents, the branch files and the version hint. The outcome has the time of the next check, and
the state of the table from now on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from msgspec import structs

from sfn.domain.events import current_table
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    PendingChange,
    PublishCache,
    PublishedPointer,
    PublishResult,
    Rescheduled,
    StoredObject,
    TableState,
    Wakeup,
)
from sfn.publish.commit_files import refresh_commit_files, write_commit_files
from sfn.publish.context import (
    FileChange,
    PlanBuilder,
    PublishContext,
    Put,
    Stage,
    duplicate_layouts,
    hint_at,
    tested_aliases,
)
from sfn.publish.documents import (
    cleared_hint,
    current_document,
    is_our_hint,
    is_up_to_date,
    names_nothing,
    tombstone_document,
)
from sfn.publish.existing_files import OurFile, TableFiles, conflict_letter, has_identifier, pointer_files
from sfn.publish.policy import Policy
from sfn.publish.queries import (
    MAX_FOREIGN_FILES,
    CatalogAnswer,
    FindFiles,
    Observations,
    PublishQuery,
    RecordLocation,
    TablesWithUuid,
)
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document, DocumentState, parse, render
from sfn.sfnfile.locations import MetadataOrder, canonical, compare_metadata
from sfn.sfnfile.naming import FileLayout, FileOwner, layout_location
from sfn.sfnfile.version_hint import is_short_lived


def write_branch_files(
    context: PublishContext,
    table: Table,
    table_files: TableFiles,
    main_document: Document,
    builder: PlanBuilder,
    *,
    rewrite: bool,
) -> None:
    """Update the files of branches to match the main document.

    Args:
        table_files: the existing files of the table.
        main_document: the main document, as it is or will be.
        rewrite: the main document is written now. Then all branch files are, because they name the same metadata file.
    """
    refs = context.policy.branch_heads(table)
    placed = {table_files.key}
    for ref, snapshot in refs.items():
        slot = context.finder.find_slot(table_files.layout, table.uuid, ref)
        if slot.conflict is not None:
            builder.given_up = conflict_letter(slot, context.name)
            continue
        placed.add(slot.key)
        doc = replace(main_document, ref=ref, snapshot_id=snapshot, hint_was=(), gap=0, between=())
        if rewrite or slot.main_document is None or not _is_up_to_date(slot.main_document, doc):
            builder.put(Stage.BRANCH, slot.key, render(doc), slot.stored)
    for file in table_files.files:
        if file.key not in placed:
            _retire_branch(context, file, builder)


def _is_up_to_date(existing: Document, doc: Document) -> bool:
    """Return whether a branch document has no other content; times and writer do not count."""
    return (
        replace(existing, asked_at=doc.asked_at, written_at=doc.written_at, writer=doc.writer, turned=doc.turned) == doc
    )


def _retire_branch(context: PublishContext, file: OurFile, builder: PlanBuilder) -> None:
    """Write a tombstone for a branch that is gone or not published any more, and delete an expired one."""
    if file.doc.is_live:
        builder.put(
            Stage.TOMBSTONE, file.key, render(tombstone_document(context, file.doc, DocumentState.DROPPED)), file.stored
        )
    elif file.doc.expires_at is not None and context.answer.answered_at >= file.doc.expires_at:
        builder.remove(Stage.DELETE, file.key, file.stored)


MAX_FOREIGN_HINT_BYTES = 64
"""Bytes of a foreign version hint that are stored, to explain why the listener does not change that hint."""


def write_pointer(context: PublishContext, table: Table, builder: PlanBuilder, *, turned: bool, refresh: bool) -> None:
    """Update document and version hint at the table's place to match the catalog's answer.

    Args:
        turned: the step to the answer is not known to be forward.
        refresh: rewrite the files even if they are up to date.
    """
    table_files, layout = context.current_files, context.layout
    if table_files is None or layout is None:
        return
    hint = hint_at(context.observations, layout.location) if layout.has_version_hint else None
    context.observations.ask_together(_queries_of_place(context, table, layout))
    is_alone = not _has_second_table(context, table, layout)
    wanted = version_hint.content(table) if _wants_hint(context, layout) and is_alone else None
    hint_is_ours = is_our_hint(context, layout.location, hint)
    is_due = hint is None or hint.body != wanted or refresh
    if wanted is not None and hint_is_ours and is_due and _has_rival(context, table):
        wanted = None
    writes_hint = wanted is not None and hint_is_ours and not _is_behind_other_name(context, table)
    # The writer that cleared the hint may still write a tombstone over the current document. A rewrite prevents that.
    rewrites_hint = writes_hint and names_nothing(hint)
    rewrite = (
        not is_up_to_date(context, table_files.main_document, table)
        or table_files.stored is None
        or rewrites_hint
        or refresh
    )
    doc = table_files.main_document
    if rewrite or doc is None:
        hint_text = hint.body.decode(errors="replace") if hint and hint_is_ours else None
        doc = current_document(context, table, table_files, hint=hint_text, writes_hint=writes_hint, turned=turned)
    if layout.naming.has_commit_files:
        doc = write_commit_files(context, table, table_files, doc, builder, rewrite=rewrite)
    if rewrite:
        builder.put(Stage.POINTER, table_files.key, render(doc), table_files.stored)
    write_branch_files(context, table, table_files, doc, builder, rewrite=rewrite)
    if rewrite and not is_alone and layout.has_version_hint and names_nothing(hint):
        # The earlier table of this directory may have written the hint since, before it saw this file.
        builder.unchanged_keys = (*builder.unchanged_keys, version_hint.key_of(layout.location))
    if wanted is not None and not hint_is_ours and hint is not None and hint.body != wanted:
        builder.foreign_hint = hint.body[:MAX_FOREIGN_HINT_BYTES].decode(errors="replace")
    key = version_hint.key_of(layout.location)
    if wanted is None and hint is not None and hint_is_ours:
        builder.remove(Stage.HINT, key, hint, fallback_body=cleared_hint(context, hint, repeated=True))
    elif wanted is not None and writes_hint and (hint is None or hint.body != wanted or refresh):
        builder.changes.append(Put(Stage.HINT, key, wanted, hint, check=(table_files.key, layout)))


def likely_queries(context: PublishContext, table: Table) -> list[PublishQuery]:
    """Return what `write_pointer` and the steps before it will ask for.

    The location is asked for only if it is recorded already, because it is recorded for good.
    """
    layout = context.layout
    if layout is None or context.conflict is not None:
        return []
    queries: list[PublishQuery] = [TablesWithUuid(table.uuid)] if table.uuid is not None else []
    if layout.encoded in context.job.locations:
        queries += _queries_of_place(context, table, layout)
    return queries


def _queries_of_place(context: PublishContext, table: Table, layout: FileLayout) -> list[PublishQuery]:
    queries: list[PublishQuery] = [RecordLocation(layout.encoded, table.uuid)]
    rival = version_hint.shadowing_file(table)
    if rival is not None and _wants_hint(context, layout):
        hint = hint_at(context.observations, layout.location)
        if hint is None or hint.body != version_hint.content(table):
            queries.append(FindFiles((rival,)))
    return queries


def needs_listing(context: PublishContext, table: Table, *, refresh: bool) -> bool:
    """Return whether the folder must be listed to find other tables in it.

    That is so on a refresh, if no live file of this table is there, if no publish of this job has settled it, and if
    the version hint is missing or foreign.
    """
    table_files, layout = context.current_files, context.layout
    if table_files is None or layout is None or table_files.conflict is not None:
        return False
    live = context.job.table_state.live
    settled = live is not None and (live.uuid, live.location) == (table.uuid, layout.location)
    written = (
        table_files.main_document is not None
        and table_files.main_document.is_live
        and table_files.main_document.guid == table.uuid
    )
    if refresh or context.observations.must_list_folders or not (settled and written):
        return True
    if layout.naming.has_commit_files and not is_up_to_date(context, table_files.main_document, table):
        # The commit files are listed below anyway.
        return True
    hint = hint_at(context.observations, layout.location) if layout.has_version_hint else None
    return _may_create_hint(context, table, layout, hint) or not is_our_hint(context, layout.location, hint)


def _wants_hint(context: PublishContext, layout: FileLayout) -> bool:
    return context.policy.version_hint and layout.has_version_hint


def _has_rival(context: PublishContext, table: Table) -> bool:
    """Return whether a reader would open another file by the hint, because a file of that name exists."""
    rival = version_hint.shadowing_file(table)
    return rival is not None and rival in context.observations.existing([rival])


def _may_create_hint(context: PublishContext, table: Table, layout: FileLayout, hint: StoredObject | None) -> bool:
    wanted = _wants_hint(context, layout) and version_hint.content(table) is not None
    return names_nothing(hint) and wanted and not _has_second_table(context, table, layout)


def _has_second_table(context: PublishContext, table: Table, layout: FileLayout) -> bool:
    """Return whether another live table is in the directory, by the inbox or by files of other catalogs or names."""
    pointers_here = pointer_files(context.observations.folders.get(layout.folder, ()))
    if (
        context.observations.table_names(RecordLocation(layout.encoded, table.uuid))
        or len(pointers_here) > MAX_FOREIGN_FILES
    ):
        return True
    return any(
        doc.is_live and (doc.guid != table.uuid or doc.catalog_id != context.policy.catalog_id)
        for doc in context.foreign_documents
    )


def _is_behind_other_name(context: PublishContext, table: Table) -> bool:
    """Return whether the table's file under another name here is ahead. Then that file determines the hint."""
    if table.uuid is None:
        return False
    return any(
        compare_metadata(live.metadata_location, (), table.metadata_location, table.metadata_log) is MetadataOrder.OLDER
        and _has_file_here(context, entry.table, live, table.uuid)
        for entry, live in context.observations.other_tables_with(table.uuid, context.name)
    )


def _has_file_here(context: PublishContext, name: TableIdentifier, live: PublishedPointer, uuid: str) -> bool:
    """Return whether the file of another name lies in this table's directory; that name's table may be elsewhere."""
    if context.layout is None or live.location == context.layout.location:
        return context.layout is not None
    other_finder = replace(context.finder, name=name, cached_keys=frozenset())
    doc = other_finder.find_slot(context.layout, uuid).main_document
    return doc is not None and doc.is_live and has_identifier(doc, name)


# ── All files of the table


def refresh_files(context: PublishContext, builder: PlanBuilder) -> None:
    """Rewrite unchanged files, because orphan cleaners delete unknown files by age."""
    changed = {change.key for change in builder.changes}
    for file in (file for table_files in context.existing for file in table_files.files):
        if file.key not in changed:
            builder.put(Stage.TOMBSTONE, file.key, file.stored.body, file.stored)
    for table_files in context.existing:
        refresh_commit_files(context, table_files, builder)


def supported_changes(changes: Iterable[FileChange], observations: Observations) -> tuple[FileChange, ...]:
    """Return the changes; a deletion becomes a write of its fallback if the store has no conditional delete."""
    supported: list[FileChange] = []
    for change in changes:
        if isinstance(change, Put) or observations.guarantees(change.key).conditional_delete:
            supported.append(change)
        elif change.fallback_body is not None:
            supported.append(Put(change.stage, change.key, change.fallback_body, change.replacing))
    return tuple(supported)


def require_fresh(context: PublishContext, changes: tuple[FileChange, ...]) -> None:
    """Require fresh observations before a write, and before the decision that no write is needed.

    A file must be read before the catalog is asked. Then a newer document makes our conditional write fail.
    """
    if changes:
        context.observations.require_answer_after(context.name, tuple(change.key for change in changes))
        return
    name = context.name
    for alias in context.aliases.values():
        context.observations.require_read(alias.other)
    for table_files in context.existing:
        guid = context.table.uuid if context.table is not None else None
        # The conflicting file may have the plain or the strict name.
        keys = (
            table_files.layout.keys(FileOwner(name.namespace, name.name, guid))
            if table_files.conflict is not None
            else [table_files.key]
        )
        hints = [version_hint.key_of(table_files.layout.location)] if table_files.layout.has_version_hint else []
        for key in (*keys, *(file.key for file in table_files.files), *hints):
            if context.observations.file(key) is not None:
                context.observations.require_read(key)


# ── The outcome


def outcome_of(
    context: PublishContext, builder: PlanBuilder, changes: tuple[FileChange, ...], *, refresh: bool, jitter: float
) -> Done | Rescheduled | DeadLettered:
    """Return the outcome that holds once all changes are made."""
    after = _documents_after(context, changes)
    table_state = _table_state(context, builder, changes, after, refresh=refresh, jitter=jitter)
    result = PublishResult(
        table_state=table_state,
        wakeups=(*builder.wakeups, *_unknown_names(context)),
        cache=PublishCache(has_woken=True),
        wake_locations=frozenset(builder.wake_locations | _changed_locations(context, table_state)),
        vacated=_vacated(context, after, changes),
    )
    if builder.rechecks:
        at, why = min(builder.rechecks)
        is_not_last = any(later > at for later, _ in builder.rechecks)
        pending = (
            context.job.pending if is_not_last else structs.replace(context.job.pending, min_metadata_location=None)
        )
        is_same = _is_same_published(context.job.table_state, table_state)
        pending = structs.replace(pending, drop=pending.drop and is_same, purge=context.is_purged and is_same)
        pending = structs.replace(pending, is_rechecked=pending.is_rechecked or builder.recheck_unconfirmed)
        return Rescheduled(at, why, pending, result)
    expiries = _expiries(after.values(), context.answer.answered_at)
    due = min([table_state.refresh_at or context.answer.answered_at, *expiries])
    conflict = context.conflict or builder.given_up
    if conflict is not None:
        return replace(conflict, result=result, recheck_at=due)
    return Done(due if after else context.answer.answered_at, result)


def _is_same_published(before: TableState, now: TableState) -> bool:
    """Return whether a reported drop may still be about the published table: not once another table has the name."""
    was, live = before.live, now.live
    return live is None or (was is not None and was.uuid == live.uuid)


def outcome_without_table(context: PublishContext, builder: PlanBuilder) -> Done | Rescheduled | DeadLettered:
    """Return the outcome if there is neither a table nor a file of ours: a wrong name, or everything has expired."""
    for table_files in context.existing:
        context.observations.require_read(table_files.key)
    for layout in map(FileLayout.parse, context.job.locations):
        if layout.naming.is_by_uuid:
            context.observations.folder(layout.folder)
    policy, table_state, answered = context.policy, context.job.table_state, context.answer.answered_at
    # What events reported is stored for longer than an event can be late. The location of a live table without files of
    # ours is stored as long as it has none, because no other source has it.
    is_remembered = bool(context.job.locations or table_state.reported)
    has_table = isinstance(context.answer.found, Table) or not policy.publishes(context.name)
    is_alive = has_table and current_table(table_state.reported) is not None
    max_misses = policy.expire_after // policy.refresh_after + 1
    locations = frozenset(layout_location(text) for text in context.job.locations)
    wake_locations = locations if table_state.misses == 0 else frozenset()
    is_new = policy.event_only and context.job.pending != PendingChange()
    misses = 1 if is_new else table_state.misses + 1
    if context.listed_name is not None:
        return _other_spelling(context, builder, context.listed_name)
    cleared = structs.replace(
        table_state, live=None, foreign_version_hint=None, renamed_to=None, foreign_catalog_id=None
    )
    table_state = structs.replace(cleared, misses=misses)
    result = PublishResult(table_state, wakeups=tuple(builder.wakeups), wake_locations=wake_locations)
    pending = PendingChange() if policy.event_only else context.job.pending
    why = "neither a table nor an SFN file was found"
    if builder.recheck_unconfirmed:
        return Rescheduled(*min(builder.rechecks), structs.replace(pending, is_rechecked=True), result)
    if table_state.misses == 1 and not table_state.has_settled:
        return Rescheduled(answered + policy.replica_lag, why, pending, result)
    if is_alive or (table_state.misses <= max_misses + 1 and is_remembered):
        return Rescheduled(answered + policy.refresh_after, why, pending, result)
    return Done(answered, PublishResult(wakeups=tuple(builder.wakeups), wake_locations=locations), forget=True)


def _other_spelling(context: PublishContext, builder: PlanBuilder, listed: TableIdentifier) -> Rescheduled | Done:
    """Return the outcome for a name that the catalog accepts but does not list.

    The spelling is remembered as long as a tombstone. The first time, the name is checked again soon, because the
    listing may come from a replica that lags.
    """
    table_state, policy, answered = context.job.table_state, context.policy, context.answer.answered_at
    is_new, has_news = table_state.listed_as != listed, context.job.pending != PendingChange()
    misses = 1 if is_new or has_news else table_state.misses + 1
    table_state = structs.replace(
        table_state, live=None, missing_since={}, on_hold=False, misses=misses, listed_as=listed
    )
    result = PublishResult(table_state, wakeups=tuple(builder.wakeups))
    if misses > policy.expire_after // policy.refresh_after + 1:
        return Done(answered, PublishResult(wakeups=tuple(builder.wakeups)), forget=True)
    at = answered + (policy.replica_lag if is_new else policy.refresh_after)
    return Rescheduled(at, f"another spelling of {listed}, which has the SFN files", result=result)


def outcome_of_staged_create(job: LeasedJob, answer: CatalogAnswer, policy: Policy, jitter: float) -> Done:
    """Return the outcome for a staged create: nothing to publish, and nothing counts as missing."""
    table_state = structs.replace(job.table_state, missing_since={}, refresh_at=next_refresh_at(answer, policy, jitter))
    return Done(answer.answered_at + policy.refresh_after, PublishResult(table_state, PublishCache()))


def next_refresh_at(answer: CatalogAnswer, policy: Policy, jitter: float) -> datetime:
    """Return when files written now must be rewritten; `jitter` in [0, 1) spreads the tables."""
    return answer.answered_at + policy.refresh_after * (1 - jitter / 4)


def _table_state(
    context: PublishContext,
    builder: PlanBuilder,
    changes: tuple[FileChange, ...],
    after: Mapping[str, Document],
    *,
    refresh: bool,
    jitter: float,
) -> TableState:
    before = context.job.table_state
    is_followed = context.table is not None and context.conflict is None
    is_decided = is_followed or not builder.rechecks
    renew = refresh or before.refresh_at is None
    return structs.replace(
        before,
        live=_published(context, after),
        has_settled=True,
        missing_since=dict(builder.missing_since),
        on_hold=before.on_hold and not is_decided,
        limit_overridden=before.limit_overridden and not is_decided,
        version_hints=_hints_after(context, changes),
        foreign_version_hint=builder.foreign_hint,
        renamed_to=_renamed_to(context, after),
        refresh_at=next_refresh_at(context.answer, context.policy, jitter) if renew else before.refresh_at,
        misses=0,
        foreign_catalog_id=_foreign_id(context),
        listed_as=context.listed_as,
        is_short_lived=is_short_lived(context.table) if context.table is not None else before.is_short_lived,
        older_files_at=builder.older_at,
    )


def _vacated(context: PublishContext, after: Mapping[str, Document], changes: tuple[FileChange, ...]) -> frozenset[str]:
    """Return the encoded layouts to forget.

    These are layouts where a tombstone of ours expired, and layouts that the job has under another name. After the
    deletion of a live file, the layout is checked for as long as a tombstone would have stayed. A writer that slept
    meanwhile may still create the file.
    """
    existing: dict[str, list[TableFiles]] = {}
    for table_files in context.existing:
        existing.setdefault(table_files.layout.encoded, []).append(table_files)
    vacated = {
        text
        for text, table_files_here in existing.items()
        if (files := [file for table_files in table_files_here for file in table_files.files])
        and not any(
            table_files.main_document is not None and table_files.main_document.is_live
            for table_files in table_files_here
        )
        and not any(file.key in after for file in files)
    }
    return frozenset(
        vacated | duplicate_layouts(context.job, context.layout, tested_aliases(context.aliases, changes), vacated)
    )


def _documents_after(context: PublishContext, changes: tuple[FileChange, ...]) -> dict[str, Document]:
    """Return our documents by key once the changes are made, without those of single commits."""
    after = {file.key: file.doc for table_files in context.existing for file in table_files.files}
    for change in changes:
        is_main = change.key in {table_files.key for table_files in context.existing}
        if isinstance(change, Put) and (is_main or change.stage is Stage.BRANCH or change.key in after):
            after[change.key] = parse(change.body)
        elif not isinstance(change, Put):
            after.pop(change.key, None)
    return after


def _published(context: PublishContext, after: Mapping[str, Document]) -> PublishedPointer | None:
    """Return the pointer of the table's own file, else the earlier one, because a reported drop is about that table.

    Of several files the newest counts: a publish may have crashed between the new place of a table and the old one. Two
    jobs that each know the other by its older file would otherwise wait for each other forever.
    """
    before = context.job.table_state.live

    def preference(found: tuple[TableFiles, Document]) -> tuple[bool, bool, datetime]:
        table_files, doc = found
        is_same_uuid = before is not None and doc.guid == before.uuid
        return context.is_current(table_files), is_same_uuid, doc.as_of

    live = [
        (table_files, doc)
        for table_files in context.existing
        if (doc := after.get(table_files.key)) is not None and doc.is_live
    ]
    if not live:
        return None
    table_files, doc = max(live, key=preference)
    return PublishedPointer(
        doc.metadata_file_path, doc.guid, table_files.layout.location, doc.written_at, doc.catalog_id, doc.asked_at
    )


def _foreign_id(context: PublishContext) -> str | None:
    here = context.current_files
    if here is None or here.conflicting_document is None or here.conflict is not DeadLetterReason.FOREIGN_CATALOG:
        return None
    return here.conflicting_document.catalog_id


def _renamed_to(context: PublishContext, after: Mapping[str, Document]) -> TableIdentifier | None:
    """Return the new name in the newest of our documents, if its table was renamed."""
    doc = max(after.values(), key=lambda doc: (doc.is_live, doc.ordinal), default=None)
    if doc is None or doc.state is not DocumentState.RENAMED or doc.moved_to is None:
        return None
    return TableIdentifier(context.name.catalog, doc.moved_to.namespace, doc.moved_to.name)


def _hints_after(context: PublishContext, changes: tuple[FileChange, ...]) -> dict[str, tuple[str, ...]]:
    """Return the contents of the version hints that the listener wrote, by location."""
    hints = dict(context.job.table_state.version_hints)
    for location in {
        table_files.layout.location for table_files in context.existing if table_files.layout.has_version_hint
    }:
        for change in changes:
            if change.key == version_hint.key_of(location):
                written = isinstance(change, Put) and change.stage is Stage.HINT
                hints.pop(location, None)
                if written and isinstance(change, Put):
                    hints[location] = (change.body.decode(),)
    return hints


def _changed_locations(context: PublishContext, table_state: TableState) -> set[str]:
    """Return the locations at which this table appeared or disappeared; the other jobs there must check again.

    After a failure, the last publish may not have settled and may have changed any location.
    """
    before, now = context.job.table_state.live, table_state.live
    was = (before.uuid, before.location) if before is not None else None
    is_now = (now.uuid, now.location) if now is not None else None
    if not context.job.cache.has_woken:
        locations = {table_files.layout.location for table_files in context.existing}
    else:
        locations = {location[1] for location in (was, is_now) if location is not None and was != is_now}
    if now is None or (before is not None and before.uuid == now.uuid):
        return locations
    return locations | _earlier_locations(context)


def _earlier_locations(context: PublishContext) -> set[str]:
    """Return the table's locations by its metadata log: under another name it may have left a tombstone there."""
    log: Sequence[str] = context.table.metadata_log if context.table is not None else ()
    # PostgreSQL does not store NUL in a text. Few logs have such an entry, so the joined text is tested first.
    if not "".join(log).isprintable():
        log = [entry for entry in log if entry.isprintable()]
    # Our files only lie beside a folder of this name.
    folders = {entry.rpartition("/")[0] for entry in log}
    return {canonical(folder.removesuffix("/metadata")) for folder in folders if folder.endswith("/metadata")}


def _unknown_names(context: PublishContext) -> list[Wakeup]:
    """Return wakeups for our documents of other names in the same folder, because a lost inbox may miss their jobs."""
    return [
        Wakeup(
            TableIdentifier(context.name.catalog, doc.namespace, doc.name),
            context.layout.encoded if context.layout is not None else None,
        )
        for doc in context.foreign_documents
        if doc.catalog_id == context.policy.catalog_id
    ]


def _expiries(documents: Iterable[Document], now: datetime) -> list[datetime]:
    """Return the future expiry times; a tombstone that stays because the store cannot delete safely needs no check."""
    times = [doc.expires_at for doc in documents if doc.expires_at is not None and not doc.is_live]
    return [at for at in times if at > now]
