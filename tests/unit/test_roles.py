"""Which roles a process may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.errors import SfnError
from sfn.settings.model import ALL_ROLES, Role, check_roles, parse_roles
from tests.unit.settings_ground import CATALOG, Ground


def test_roles_are_named_with_commas() -> None:
    assert parse_roles("receiver, worker,gateway, facade,admin") == ALL_ROLES
    assert parse_roles("worker") == {Role.WORKER}


@pytest.mark.parametrize(
    ("text", "said"), [("wroker", "did you mean worker?"), ("", "some of receiver, worker, gateway, facade, admin")]
)
def test_what_is_no_role_is_named(text: str, said: str) -> None:
    with pytest.raises(SfnError) as refused:
        parse_roles(text)
    assert said in str(refused.value)


def test_work_is_left_to_nobody_with_an_inbox_that_one_process_has(tmp_path: Path) -> None:
    settings = Ground(tmp_path).load(CATALOG)
    check_roles({Role.WORKER}, settings)
    with pytest.raises(SfnError, match="expected worker among them"):
        check_roles({Role.RECEIVER, Role.ADMIN}, settings)
    shared = Ground(tmp_path).load(f"{CATALOG}[inbox]\nurl = 'postgresql://sfn@db/sfn'\n")
    check_roles({Role.RECEIVER}, shared)
