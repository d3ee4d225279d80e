"""Access control and accepted events follow the settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sfn.admin.routes import RetiredCatalogs
from sfn.app.endpoints import build_access_control
from sfn.app.wiring import build_event_filter, decode_undecodable
from sfn.clock import SystemClock
from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import FatalError, Rejected
from sfn.formats.event import Sender
from sfn.settings.root import Settings
from tests.support.settings_file import CATALOG, Ground

SECRET = "s3cret-of-two"  # noqa: S105 - it opens nothing


def written(folder: Path, name: str, *tokens: str) -> Path:
    file = folder / name
    file.write_text("\n".join(tokens))
    return file


def test_senders_and_operators_are_known_by_named_tokens_and_those_of_files(ground: Ground, tmp_path: Path) -> None:
    etl, admin = written(tmp_path, "etl", "a", "b"), written(tmp_path, "admin", "c")
    text = (
        f"{CATALOG}[senders.etl]\nsecrets = {{ main = 'd' }}\nsecrets_file = '{etl}'\n[admin]\ntoken_file = '{admin}'"
    )
    admitted = build_access_control(ground.load(text), SystemClock())
    assert admitted.operators is not None
    for token in ("a", "b", "d"):
        assert admitted.senders.identify_by_token(f"Bearer {token}".encode()) == Sender("etl", {"prod": "prod"})
        assert not admitted.operators.authenticate(f"Bearer {token}".encode(), None)
    assert admitted.senders.identify_by_token(b"Bearer c") is None
    assert admitted.operators.authenticate(b"Bearer c", None)


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("[senders.a]\nsecrets_file = '{}'", "senders.a.secrets_file"),
        ("[admin]\ntoken_file = '{}'", "admin.token_file"),
        ("[stores.lake]\nprefix = '/lake'\n[facade]\ntoken_file = '{}'", "facade.token_file"),
        ("[telemetry]\nmetrics_token_file = '{}'", "telemetry.metrics_token_file"),
    ],
)
def test_a_missing_file_is_named_with_its_setting_and_a_remedy(
    ground: Ground, tmp_path: Path, text: str, setting: str
) -> None:
    with pytest.raises(FatalError) as caught:
        build_access_control(ground.load(CATALOG + text.format(tmp_path / "ETL")), SystemClock())
    assert caught.value.where == f"{setting}: {tmp_path / 'ETL'}"
    assert caught.value.remedy.startswith("put the file there")


def test_without_senders_everybody_may_send_and_nobody_may_operate(ground: Ground) -> None:
    admitted = build_access_control(ground.load(CATALOG), SystemClock())
    assert admitted.senders.identify_by_token(None) == Sender("anonymous", {"prod": "prod"})
    assert admitted.operators is None


def test_without_senders_operators_are_still_known_by_their_token(ground: Ground) -> None:
    admitted = build_access_control(ground.load(f"{CATALOG}[admin]\ntoken = 'op'"), SystemClock())
    assert admitted.operators is not None
    assert admitted.operators.authenticate(b"Bearer op", None)
    assert not admitted.operators.authenticate(None, None)


@pytest.mark.parametrize("other", ["[senders.b]\nsecrets_file = '{}'", "[admin]\ntoken_file = '{}'"])
def test_a_token_that_two_files_share_is_refused_with_both_places(ground: Ground, tmp_path: Path, other: str) -> None:
    mine, theirs = written(tmp_path, "mine", "x", SECRET), written(tmp_path, "theirs", SECRET)
    settings = ground.load(f"{CATALOG}[senders.a]\nsecrets_file = '{mine}'\n{other.format(theirs)}")
    with pytest.raises(FatalError) as caught:
        build_access_control(settings, SystemClock())
    party = "admin" if "admin" in other else "senders.b"
    assert caught.value.where == f"senders.a ({mine}:2) and {party} ({theirs}:1)"
    assert SECRET not in str(caught.value)


def test_a_sender_may_be_pinned_to_a_dialect(ground: Ground) -> None:
    text = "[senders.etl]\ndialect = 'glue'\nsecrets = { main = 'd' }\ncatalogs = { '1/eu' = 'prod' }"
    sender = build_access_control(ground.load(CATALOG + text), SystemClock()).senders.identify_by_token(b"Bearer d")
    assert sender == Sender("etl", {"1/eu": "prod"}, "glue")


SETTINGS = f"""
{CATALOG}
exclude = ["tmp.*"]
[catalogs.hive]
type = "events"
catalog_id = "hive-prod"
allowed_locations = ["s3://lake/"]
exclude = ["tmp.*"]
[senders.etl]
secrets = {{ main = "a" }}
catalogs = {{ prod = "prod", hive = "hive" }}
"""
AT = "s3://lake/t/metadata/00001-x.metadata.json"


@pytest.fixture(name="settings")
def fixture_settings(tmp_path: Path) -> Settings:
    return Ground(tmp_path).load(SETTINGS)


def event(catalog: str, namespace: str = "sales", **more: str) -> dict[str, object]:
    return {"catalog": catalog, "namespace": [namespace], "name": "t", **more}


def kept(content: object, sender: str = "etl") -> UndecodableRequest:
    body = json.dumps(content).encode()
    return UndecodableRequest(sender, "/v1/events", "application/json", body, len(body), "nobody understood it")


@pytest.mark.parametrize("retired", [frozenset(), frozenset({"prod", "hive"})])
def test_what_nobody_can_be_asked_for_is_kept_though_nothing_is_published_of_it(
    settings: Settings, retired: frozenset[str]
) -> None:
    hints = [
        Notification(TableIdentifier(catalog, (level,), "t"))
        for catalog in ("prod", "hive")
        for level in ("sales", "tmp")
    ]
    taken = build_event_filter(settings, RetiredCatalogs(retired)).relevant(hints)
    assert taken == [*(hints[:1] if not retired else []), *hints[2:]]


def test_a_catalog_is_of_no_concern_from_when_it_retires_until_that_is_undone(settings: Settings) -> None:
    retirement = RetiredCatalogs()
    ours, hint = build_event_filter(settings, retirement), Notification(TableIdentifier("prod", ("sales",), "t"))
    taken = []
    for retirement.names in (frozenset(), frozenset({"prod"}), frozenset()):
        taken.append(ours.relevant([hint]))
    assert taken == [[hint], [], [hint]]


def test_what_is_decoded_again_is_of_the_same_concern(settings: Settings) -> None:
    content = [
        event(catalog, level, metadata_location=AT) for catalog in ("prod", "hive") for level in ("sales", "tmp")
    ]
    hints = decode_undecodable(settings, build_event_filter(settings, RetiredCatalogs()), kept(content))
    assert [str(hint.subject) for hint in hints] == ["prod:sales.t", "hive:sales.t", "hive:tmp.t"]


def test_what_is_decoded_again_must_say_enough_as_well(settings: Settings) -> None:
    content = [event("hive", metadata_location=AT), event("hive")]
    with pytest.raises(Rejected) as caught:
        decode_undecodable(settings, build_event_filter(settings, RetiredCatalogs()), kept(content))
    assert (caught.value.status, caught.value.where) == (422, "#/1")


def test_a_sender_that_is_not_configured_any_more_is_named_with_those_that_are(settings: Settings) -> None:
    with pytest.raises(Rejected, match="a configured sender: etl, found gone"):
        decode_undecodable(settings, build_event_filter(settings, RetiredCatalogs()), kept(event("prod"), "gone"))


def test_what_was_fetched_is_decoded_again_for_the_catalogs_of_its_source(tmp_path: Path) -> None:
    pull = "[pull.events]\nservers = ['nats://a']\nsubject = 's'\ncatalogs = { theirs = 'prod' }\n"
    for settings in (Ground(tmp_path).load(f"{text}{pull}") for text in (SETTINGS, CATALOG)):
        ours = build_event_filter(settings, RetiredCatalogs())
        (hint,) = decode_undecodable(settings, ours, kept(event("theirs"), "pull.events"))
        assert hint.subject == TableIdentifier("prod", ("sales",), "t")
        with pytest.raises(Rejected, match="expected one of theirs"):
            decode_undecodable(settings, ours, kept(event("hive"), "pull.events"))


def test_what_was_fetched_from_a_source_that_is_gone_is_nobodys_though_nobody_need_show_who_it_is(
    tmp_path: Path,
) -> None:
    settings = Ground(tmp_path).load(CATALOG)
    with pytest.raises(Rejected, match=r"a configured sender: none is, found pull\.old"):
        decode_undecodable(settings, build_event_filter(settings, RetiredCatalogs()), kept(event("prod"), "pull.old"))


def test_without_senders_it_may_be_of_any_catalog(tmp_path: Path) -> None:
    settings = Ground(tmp_path).load(CATALOG)
    (hint,) = decode_undecodable(
        settings, build_event_filter(settings, RetiredCatalogs()), kept(event("prod"), "anonymous")
    )
    assert hint.subject == TableIdentifier("prod", ("sales",), "t")


def test_what_is_decoded_again_is_of_the_dialect_that_the_sender_is_pinned_to_now(tmp_path: Path) -> None:
    pinned = Ground(tmp_path).load(SETTINGS.replace("[senders.etl]", '[senders.etl]\ndialect = "glue"'))
    with pytest.raises(Rejected, match="an event in the format glue"):
        decode_undecodable(pinned, build_event_filter(pinned, RetiredCatalogs()), kept(event("prod")))
