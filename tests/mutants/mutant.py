"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule broken.

    Attributes:
        patch: file name without `.patch`.
        rule: number of the design's rule; 13 is "the timeline lacks no commit and every branch follows", 14 "nothing of
            ours grows old enough to be cleaned away", 15 "a commit through a gateway is asked for until its outcome is
            known", 16 "the facade shows what the SFN file says now, of tables below one root, and lets nobody clean
            up".
        killer: the test that must fail.
        promise: what its failure must say: the failed assertion, or the kind of promise that was broken first.
    """

    patch: str
    rule: int
    killer: str
    promise: str


def broken(kind: str) -> str:
    """The checker's first complaint."""
    return f"first item: ('{kind}'"
