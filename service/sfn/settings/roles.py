"""What one process of the service does, where several share an inbox."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final

from sfn.errors import SfnError, suggest_name
from sfn.settings.model import Settings


class Role(StrEnum):
    """A part of the service."""

    RECEIVER = "receiver"
    """Takes events."""
    WORKER = "worker"
    """Sweeps, asks the catalogs, writes files."""
    GATEWAY = "gateway"
    """Stands before catalogs, if gateways are configured."""
    FACADE = "facade"
    """Answers readers, if there is a facade."""
    ADMIN = "admin"
    """Answers operators, if they have a token."""


ALL_ROLES: Final = frozenset(Role)


def parse_roles(text: str) -> frozenset[Role]:
    """The roles in a list with commas.

    Raises:
        SfnError: one is none.
    """
    known = [role.value for role in Role]
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            remedy = suggest_name(word, known)
            raise SfnError("--roles", expected=f"some of {', '.join(known)}", found=repr(word), remedy=remedy)
    return frozenset(map(Role, words))


def check_roles(roles: AbstractSet[Role], settings: Settings) -> None:
    """Refuse roles that leave work to nobody.

    Raises:
        SfnError: the inbox is one that no other process can have, and nobody would work off what it takes.
    """
    if settings.inbox.path is not None and Role.WORKER not in roles:
        raise SfnError(
            "--roles",
            expected="worker among them, as one process alone has an inbox in SQLite",
            found=", ".join(sorted(roles)),
            remedy='add it, or share an inbox: [inbox] url = "postgresql://…"',
        )
