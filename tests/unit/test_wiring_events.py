"""Which events are taken, by the settings and by who retired; and what becomes of a request that is decoded again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sfn.admin.routes import RetiredCatalogs
from sfn.app.wiring import build_event_filter, decode_undecodable
from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import Rejected
from sfn.settings.model import Settings
from tests.unit.settings_ground import CATALOG, Ground

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
