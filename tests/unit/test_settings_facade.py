"""The settings of a facade, and what does not fit together of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.app.endpoints import build_access_control, build_facade
from sfn.clock import SystemClock
from sfn.errors import FatalError
from sfn.facade.app import Receive, Scope, Send
from sfn.inbox.memory import MemoryInbox
from sfn.settings.model import ALL_ROLES, Role, parse_roles
from sfn.storage import PrefixRouter
from sfn.telemetry.metrics import Metrics
from tests.promises.inboxes import TERMS, HandClock
from tests.unit.settings_ground import CATALOG, Ground

STORES = f'{CATALOG}[stores.a]\nprefix = "/w"\n[stores.b]\nprefix = "s3://bucket/x"\n'


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_without_a_token_there_is_none(ground: Ground) -> None:
    facade = ground.load(STORES).facade
    assert (facade.is_on, facade.roots, facade.directories, facade.metadata_limit) == (False, (), True, 64 << 20)
    assert not ground.load(f"{STORES}[facade]\ndirectories = false\n").facade.is_on
    assert build_access_control(ground.load(STORES), SystemClock()).readers is None


@pytest.mark.parametrize("key", ["token = 'a'", "token_file = '/t'", "open = true"])
def test_with_a_token_or_open_there_is_one(ground: Ground, key: str) -> None:
    assert ground.load(f"{STORES}[facade]\n{key}\n").facade.is_on


def test_roots_are_canonical_and_lie_below_stores(ground: Ground) -> None:
    text = "[facade]\nopen = true\nroots = ['file:/w/public/', 's3a://bucket/x']\n"
    assert ground.load(STORES + text).facade.roots == ("file:///w/public", "s3://bucket/x")
    for root in ("/wide", "s3://bucket", "gs://bucket/x"):
        problem = ground.problem(f"{STORES}[facade]\nopen = true\nroots = ['{root}']\n")
        assert problem.startswith("sfn.toml: [facade] roots: expected places below a store: file:///w, s3://bucket/x")


@pytest.mark.parametrize("root", ["w", "/w/../etc", "/w/%2e%2e/x", "http://x/w"])
def test_a_root_that_is_no_place_is_refused(ground: Ground, root: str) -> None:
    assert "[facade] roots" in ground.problem(f"{STORES}[facade]\nopen = true\nroots = ['{root}']\n")


def test_what_does_not_fit_together_is_told(ground: Ground) -> None:
    for key in ("token = 'a'", "token_file = '/t'"):
        problem = ground.problem(f"{STORES}[facade]\nopen = true\n{key}\n")
        assert problem == "sfn.toml: [facade] open: expected false, as there is a token, found true; keep one"
    vended = f"{CATALOG}vended_credentials = true\n[facade]\ntoken = 'a'\n"
    assert "a store that the facade reads tables from" in ground.problem(vended)
    assert "metadata_limit" in ground.problem(f"{STORES}[facade]\nopen = true\nmetadata_limit = 'much'\n")


def test_its_readers_are_known_by_their_tokens_alone(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("b\n# not c\nd\n")
    text = f"{STORES}[facade]\n{{}}\n[admin]\ntoken = 'op'\n"
    keys = {"token = 'a'": "a", f"token_file = '{tmp_path}/tokens'": "bd"}
    for key, tokens in keys.items():
        admitted = build_access_control(ground.load(text.format(key)), SystemClock())
        assert admitted.readers is not None
        assert [one for one in "abcd" if admitted.readers(f"Bearer {one}".encode())] == list(tokens)
        assert not admitted.readers(None)
        assert not admitted.readers(b"Bearer op")
        assert len(admitted.files) == len(tokens) - 1
    (tmp_path / "tokens").write_text("op")
    with pytest.raises(FatalError):
        build_access_control(ground.load(text.format(key)), SystemClock())


async def test_without_one_the_listener_is_as_it_was(ground: Ground) -> None:
    async def others(_scope: Scope, _receive: Receive, _send: Send) -> None:
        """Whatever else the listener answers."""

    def refused(_broken: FatalError) -> None:
        """The process ends."""

    readers = Metrics(version="1", catalogs=["prod"]).readers
    inbox, opened = MemoryInbox(TERMS, HandClock()), ground.load(f"{STORES}[facade]\nopen = true\n")
    for settings in (None, ground.load(STORES)):
        assert build_facade(settings, inbox, PrefixRouter({}), None, readers, refused)(others) is others
    assert build_facade(opened, inbox, PrefixRouter({}), None, readers, refused)(others) is not others


def test_it_is_a_role() -> None:
    assert Role.FACADE in ALL_ROLES
    assert parse_roles("facade, worker") == {Role.FACADE, Role.WORKER}


def test_its_token_is_shown_nowhere(ground: Ground) -> None:
    assert "hush" not in repr(ground.load(f"{STORES}[facade]\ntoken = 'hush'\n"))
