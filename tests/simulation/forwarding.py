"""Where the files lead that a table left behind: who still knows its old place or name finds it, or learns its new one.

Not so, by the specification, of a file
- of a table that was once nowhere: it may have been given up for good under the name that it had (section 4, Absent),
  and one that comes back comes without its tombstones; so it is of one that was once switched off;
- of a table that is refused, or that is where no store is: it is given up, or stays as it is;
- which leads to a file that another table has taken over: each document on the way must carry the same uuid
  (section 5);
- of a table that was given up under a name that it had left, when no other row was known to have it: a row is known to
  once it has settled (section 4, Absent);
- which is called by the uuid, and whose name another table took beside it: that one's supersedes it (section 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfn.errors import NameTaken
from sfn.reader.resolve import Resolved
from sfn.sfnfile.naming import MAIN_BRANCH

if TYPE_CHECKING:
    from tests.simulation.rest import Resting, _Rest

HOPS = 8


def check_forwarding(rest: _Rest, place: str, *, is_empty: bool) -> None:
    """Look for each table as whoever knows what it left at a place does.

    Args:
        is_empty: no table lives there.
    """
    tables = {one.table.uuid: one for one in rest.tables}
    documents = [(key, doc) for key, doc in rest.checker.documents(place) if doc["ref"] == MAIN_BRANCH]
    left = [
        doc
        for key, doc in documents
        if doc["state"] != "current" and doc["guid"] in tables and _leads_on(rest, key, doc, tables[doc["guid"]])
    ]
    for doc in left:
        _check_name(rest, place, doc, tables[doc["guid"]])
    for uuid in sorted({doc["guid"] for doc in left}):
        _expect(rest, f"{place} by uuid", rest.checker.resolve(place, None, uuid=uuid), tables[uuid])
        if is_empty and {doc["guid"] for _, doc in documents} == {uuid}:
            _expect(rest, f"{place} by directory", rest.checker.resolve(place, None), tables[uuid])


def _check_name(rest: _Rest, place: str, doc: dict[str, Any], one: Resting) -> None:
    """By its old name: the table, or once another has that name, what this one is called now.

    Where the table moved before it was renamed the file of its old name lies elsewhere, and says that for whoever comes
    to it: whoever starts here is led to the table.
    """
    identifier = (*doc["namespace"], doc["name"])
    listed = rest.checker.listed(identifier)
    heir = next((other for other in rest.tables if other.identifier == listed and other is not one), None)
    if heir is not None and rest.place_of(heir) == place:
        return
    found, what = rest.checker.resolve(place, identifier), f"{place} by name {identifier}"
    if isinstance(found, NameTaken):
        had = len(rest.checker.ranks.names[one.catalog_id, listed])
        if had < 2 or f" {'.'.join(one.identifier)}," not in found.found:
            rest.blame("a name that is said to be taken", f"{what}: {found}")
    elif heir is not None and doc["state"] == "renamed" and not _is_refused(rest, heir):
        rest.blame("a name that is not said to be taken", f"{what}: {found}")
    else:
        _expect(rest, what, found, one)


def _expect(rest: _Rest, what: str, found: object, one: Resting) -> None:
    if not isinstance(found, Resolved) or found.metadata_location != one.table.metadata_location:
        rest.blame("a table that is not found where it was", f"{what}: {found}, not {one.table.metadata_location}")


def _leads_on(rest: _Rest, key: str, doc: dict[str, Any], one: Resting) -> bool:
    """Whether none of the exceptions is met."""
    checker = rest.checker
    was_away = one.table.uuid in checker.ranks.ended or not checker.is_live(
        one.catalog_id, one.identifier, one.table.uuid
    )
    is_exempt = was_away or (key in checker.unheard_of and checker.told) or _is_refused(rest, one)
    return not (is_exempt or _is_cut(rest, doc) or _is_superseded(rest, key, doc))


def _is_refused(rest: _Rest, one: Resting) -> bool:
    return one.refused or one.table.uuid in rest.strays


def _is_cut(rest: _Rest, doc: dict[str, Any]) -> bool:
    """Whether on the way from a document lies a file that is another table's."""
    at = doc
    for _ in range(HOPS):
        target = (at.get("moved_to") or {}).get("sfn_file_path")
        if target not in rest.checker.files.bodies:
            return False
        at = rest.checker.document(target)
        if at["guid"] != doc["guid"]:
            return True
    return False


def _is_superseded(rest: _Rest, key: str, doc: dict[str, Any]) -> bool:
    named = rest.checker.ranks.names[doc["catalog_id"], rest.checker.listed((*doc["namespace"], doc["name"]))]
    by_uuid = key.rpartition("/")[2].startswith(str(doc["guid"]))
    place = next(place for place in sorted(rest.checker.places) if key.startswith(f"{place}/"))
    beside = (uuid for uuid in named if uuid != doc["guid"] and place in rest.checker.ranks.places[uuid])
    return doc["state"] == "dropped" and by_uuid and any(beside)
