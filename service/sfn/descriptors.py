"""This process's limit of open files: raised at the start, and shared between connections and work."""

from __future__ import annotations

import resource
from typing import Final

MAX_RAISED_LIMIT: Final = 65_536
"""The limit is not raised beyond it: some programs go over every number up to the limit."""
LOW_LIMIT: Final = 1024
"""Below this limit a busy service may run short."""
MIN_CONNECTIONS: Final = 8
"""Connections that a listener takes in any case."""


def limit() -> int:
    """How many files this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_RAISED_LIMIT if soft == resource.RLIM_INFINITY else soft


def hard_limit() -> int:
    """What the process may raise its limit to by itself, up to `MAX_RAISED_LIMIT`."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return MAX_RAISED_LIMIT if hard == resource.RLIM_INFINITY else min(hard, MAX_RAISED_LIMIT)


def raise_limit() -> int:
    """Raise the soft limit to the hard one, up to `MAX_RAISED_LIMIT`. Never lower it.

    Returns:
        The limit from now on.
    """
    wanted = hard_limit()
    if limit() < wanted:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            # Some systems have a lower bound of their own.
            return limit()
    return limit()


def connections_per_listener(listeners: int) -> int:
    """Return how many connections each listener accepts; half of all files stay for work."""
    return max(MIN_CONNECTIONS, limit() // 2 // max(1, listeners))
