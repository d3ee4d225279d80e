"""What differs between the catalog's answer for a table and our files beside it, pure: nothing is to be written.

A rehearsal of a first publish, for people: it reads as `decide` does, and says what it found instead of what to write.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sfn.pointer import hintfile
from sfn.pointer.document import Document
from sfn.pointer.lineage import Relation, relate
from sfn.pointer.naming import Whose
from sfn.publish.facts import Facts
from sfn.publish.inventory import Inventory, is_named
from sfn.publish.own import Own
from sfn.publish.policy import Policy
from sfn.publish.scene import hint_at
from sfn.words import Reason, Table, TableName


class Kind(StrEnum):
    """What a table's files are to the catalog's answer.

    missing           no file of ours lies there
    behind            it names an older metadata file, or says that the table is gone
    ahead             it names a newer metadata file than the catalog
    other             it names one that is neither known to be newer nor older, or another table's
    hint-behind       the SFN file is right, the version hint beside it is not yet
    left-over         the table gets no files, and has one
    foreign-catalog, foreign-file, location-refused, permanent
                      no file of ours can be written there, as for a dead letter of that reason
    """

    MISSING = "missing"
    BEHIND = "behind"
    AHEAD = "ahead"
    OTHER = "other"
    HINT_BEHIND = "hint-behind"
    LEFT_OVER = "left-over"
    FOREIGN_CATALOG = "foreign-catalog"
    FOREIGN_FILE = "foreign-file"
    LOCATION_REFUSED = "location-refused"
    PERMANENT = "permanent"


@dataclass(frozen=True, slots=True)
class Difference:
    """One table that differs.

    Attributes:
        table: which.
        kind: how.
        detail: what was found, for a person.
    """

    table: TableName
    kind: Kind
    detail: str


@dataclass(frozen=True, slots=True)
class Compared:
    """What lies at a table's place.

    Attributes:
        own: our files there.
        difference: how they differ from what they should say; None where all is right.
        is_exact: they say just what the catalog does, and so does the version hint, or there is none: nothing of that
            was found out by the table's metadata log.
    """

    own: Own
    difference: Difference | None
    is_exact: bool


def usual(name: TableName, table: Table, place: str, policy: Policy) -> tuple[str, ...]:
    """The files that `compare` reads of nearly every table, for whoever can read several at once."""
    site = policy.site(name, place)
    keys = site.keys(Whose(name.namespace, name.name, table.uuid))[:1]
    has_hint = policy.version_hint and site.has_hint
    return (*keys, hintfile.key(site.location)) if has_hint else keys or (site.folder,)


def compare(name: TableName, table: Table, place: str, facts: Facts, policy: Policy) -> Compared:
    """What lies at a table's place, and how that differs from what should.

    Args:
        name: its identifier.
        table: what the catalog says.
        place: its canonical location, checked.
        facts: the files there, as far as they were read.
        policy: the catalog's settings.

    Raises:
        Lacking: a file must be read first.
    """
    own = Inventory(facts, policy, name).slot(policy.site(name, place), table.uuid)
    difference = _difference(name, table, own, facts, policy)
    hint = hint_at(facts, own.site.location) if difference is None and _has_hint(own, table, policy) else None
    return Compared(own, difference, difference is None and (hint is None or hint.body == hintfile.content(table)))


def _difference(name: TableName, table: Table, own: Own, facts: Facts, policy: Policy) -> Difference | None:
    if table.left_alone is not None:
        live = own.doc is not None and own.doc.live
        return Difference(name, Kind.LEFT_OVER, f"{own.key}: {table.left_alone}") if live else None
    if own.obstacle is not None:
        return _obstructed(name, own, own.obstacle)
    if own.doc is None:
        return Difference(name, Kind.MISSING, f"nothing at {own.key}")
    if not is_named(own.doc, name):
        said = f"{own.key} still calls the table {'.'.join((*own.doc.namespace, own.doc.name))}"
        return Difference(name, Kind.BEHIND, said)
    found = _pointing(own.doc, table) or _hint(own, own.doc, table, facts, policy)
    return None if found is None else Difference(name, found[0], f"{own.key}: {found[1]}")


def _obstructed(name: TableName, own: Own, obstacle: Reason) -> Difference:
    if obstacle is Reason.FOREIGN_CATALOG and own.found is not None:
        return Difference(name, Kind.FOREIGN_CATALOG, f"{own.key} carries the catalog_id {own.found.catalog_id}")
    if obstacle is Reason.PERMANENT:
        return Difference(name, Kind.PERMANENT, "it has no table-uuid to call its files by")
    return Difference(name, Kind.FOREIGN_FILE, f"{own.key} is not provably ours")


def _pointing(doc: Document, table: Table) -> tuple[Kind, str] | None:
    said = doc.metadata_file_path
    if not doc.live:
        return Kind.BEHIND, f"it says {doc.state.value}"
    if doc.guid != table.uuid:
        return Kind.OTHER, f"it is of the table {doc.guid}, the catalog's is {table.uuid}"
    match relate(said, (), table.metadata_location, table.metadata_log):
        case Relation.SAME:
            return None
        case Relation.NEWER:
            return Kind.BEHIND, f"it names {said}, the catalog {table.metadata_location}"
        case Relation.OLDER:
            return Kind.AHEAD, f"it names {said}, the catalog {table.metadata_location}"
        case Relation.UNKNOWN:
            return (
                Kind.OTHER,
                f"it names {said}, the catalog {table.metadata_location}, of which none is known to be newer",
            )


def _hint(own: Own, doc: Document, table: Table, facts: Facts, policy: Policy) -> tuple[Kind, str] | None:
    """The version hint, where it is ours and behind. None at all may be right: two tables may share the directory."""
    wanted = hintfile.content(table)
    hint = hint_at(facts, own.site.location) if _has_hint(own, table, policy) else None
    if hint is None or hint.body == wanted:
        return None
    said = hint.body.decode(errors="replace")
    named = (text for entry in table.metadata_log for text in hintfile.spellings(entry))
    ours = {*doc.hint_was, *(text for text in named if not hintfile.is_numbered(text))}
    right = "and there should be none" if wanted is None else f"not {wanted.decode()}"
    return (Kind.HINT_BEHIND, f"the version hint says {said}, {right}") if said in ours else None


def _has_hint(own: Own, table: Table, policy: Policy) -> bool:
    """Whether a version hint of ours may stand beside the table's files."""
    return table.left_alone is None and policy.version_hint and own.site.has_hint
