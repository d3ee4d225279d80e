"""Stores of object stores whose packages are missing."""

from __future__ import annotations

import sys

import pytest

from sfn.errors import Permanent, Scope
from sfn.wiring.remote import Remotes
from sfn.words import Grant


async def test_what_is_vended_for_a_store_that_lacks_its_packages_is_the_stores_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trouble of the whole store: no table of it becomes a dead letter."""
    monkeypatch.delitem(sys.modules, "sfn.wiring.on_s3", raising=False)
    monkeypatch.setitem(sys.modules, "sfn.store.s3", None)
    remotes = Remotes({})
    with pytest.raises(Permanent, match=r"no module sfn\.store\.s3; pip install '\.\[s3\]'") as missing:
        remotes.granted(Grant("", {"s3.access-key-id": "k"}, None), "s3://lake/orders")
    assert missing.value.scope is Scope.STORE
    await remotes.close()
