"""Other names of one place: by a link, a mount or another scheme two locations lead to the same directory.

Two names of one place look like two places with equal copies, until one of the two is written. So two files
that have the same bytes under two names are taken for one file, and only one of its names is written. Each document
carries the time of the catalog's answer, so what is written differs from what was there: when the plan is carried out
the protocol reads the other name (`Plan.aliases`). It shows the same bytes if both names are of one place. If it shows
the old bytes it is a copy, the plan is decided again, and the two differ from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from sfn.pointer.site import Site
from sfn.publish.changes import Change, Put
from sfn.publish.facts import Facts
from sfn.publish.own import Own
from sfn.words import Claim


@dataclass(frozen=True, slots=True)
class Alias:
    """One file under two names.

    Attributes:
        key: by the name that is written.
        other: by the other one.
        site: where the file belongs, by the name that is written.
    """

    key: str
    other: str
    site: Site


def find_aliases(claim: Claim, site: Site | None, owns: Sequence[Own], facts: Facts) -> dict[Site, Alias]:
    """The sites of our files that are, as far as can be told, other names of one of the other sites.

    The name that is written is the table's, or else the one that was published last, or the first one.

    Args:
        site: where the table's files belong.
    """
    live = claim.story.live
    home = site.location if site is not None else live.location if live is not None else None
    known: dict[Site, None] = {} if site is None else {site: None}
    found: dict[Site, Alias] = {}
    for own in sorted(owns, key=lambda own: (own.site.location != home, own.site.text)):
        lead = own.lead
        if lead is None or own.site in found:
            continue
        for other in known:
            # A location below a root is no directory of a table's.
            if other.location == own.site.location or other.has_hint is not own.site.has_hint:
                continue
            key = counterpart(own, lead.key, other.location)
            held = facts.file(key)
            if held is not None and held.body == lead.held.body:
                found[own.site] = Alias(key, lead.key, replace(own.site, location=other.location))
                break
        else:
            known[own.site] = None
    return found


def counterpart(own: Own, key: str, location: str) -> str:
    """The key of one of our files if its site were at another location."""
    return replace(own.site, location=location).folder + key.removeprefix(own.site.folder)


def are_one_file(one: Own, other: Own) -> bool:
    """Whether the leading files of two sites are, as far as can be told, one file."""
    if one.key == other.key:
        return True
    are_called_alike = one.key.rpartition("/")[2] == other.key.rpartition("/")[2]
    held = one.held
    return are_called_alike and held is not None and other.held is not None and held.body == other.held.body


def tried(aliases: Mapping[Site, Alias], changes: Iterable[Change]) -> dict[Site, Alias]:
    """The aliases that these changes prove or refute: a file that has other bytes afterwards."""
    changed = {
        change.key
        for change in changes
        if not isinstance(change, Put) or change.replacing is None or change.body != change.replacing.body
    }
    return {site: alias for site, alias in aliases.items() if alias.key in changed}


def known_twice(claim: Claim, site: Site | None, proven: Mapping[Site, Alias], left: AbstractSet[str]) -> set[str]:
    """The row's texts of sites that the row knows by another name, or in another spelling, as well.

    Args:
        site: where the table's files belong; the row knows it by now.
        proven: aliases that hold once the plan is carried out.
        left: texts of sites where no file of ours lies any more.
    """
    known = claim.locations | left | ({site.text} if site is not None else set())
    texts = {text: Site.of(text) for text in claim.locations}
    return {
        text
        for text, one in texts.items()
        if (one in proven and proven[one].site.text in known) or (text != one.text and one.text in known)
    }
