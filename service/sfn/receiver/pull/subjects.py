"""Subjects with wildcards (NATS documentation, "Subject-Based Messaging")."""

from __future__ import annotations

from typing import Final

_ONE: Final = "*"
_REST: Final = ">"


def subjects_overlap(one: str, other: str) -> bool:
    """Whether there is a subject that both of these mean."""
    left, right = one.split("."), other.split(".")
    for mine, theirs in zip(left, right, strict=False):
        if _REST in {mine, theirs}:
            return True
        if mine != theirs and _ONE not in {mine, theirs}:
            return False
    return len(left) == len(right)
