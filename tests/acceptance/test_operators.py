"""Operators at work with the command line on a real service, also where something is wrong and where senders sign."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sfn.cli.client import actor_name
from tests.support.command_line import Done, Place, answered, interrupted, on_terminal, place, sfn
from tests.support.listener import TEXT, WEBHOOK
from tests.support.processes import until
from tests.support.service import serving


@pytest.fixture(name="here", scope="module")
async def fixture_here(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place]:
    async with place(tmp_path_factory.mktemp("operators"), more='[sweep]\nevery = "off"\n') as made:
        await made.publish("first")
        yield made


async def test_one_table_has_its_whole_story(here: Place) -> None:
    pointer = await here.publish("storied")
    told = await here.sfn("status", "sales.storied")
    assert (told.status, told.err) == (0, "")
    assert told.out.startswith("prod:sales.storied: published; the file was written ")
    assert pointer in told.out
    assert "from etl" in told.out
    exact = await here.sfn("status", "sales.storied", "--json", "--catalog", "prod")
    assert exact.json["published"]["metadata_location"] == pointer
    assert exact.json["catalog_now"]["metadata_location"] == pointer


async def test_the_pointer_in_the_catalog_is_shown_with_the_published_one(here: Place) -> None:
    await here.publish("pointed")
    shown = " ".join((await here.sfn("status", "sales.pointed")).out.split())
    assert re.search(r"catalog now file:\S+ agrees with what is published; answered 20\d\d-\S+ \S+Z", shown)
    newer = here.lake.commit("pointed")
    found = (await here.sfn("status", "prod:sales.pointed", "--json")).json["catalog_now"]
    assert (found["metadata_location"], found["agrees"]) == (newer, False)
    here.lake.delay = 60.0
    began = time.monotonic()
    hung = await here.sfn("status", "sales.pointed")
    here.lake.delay = 0.0
    assert (hung.status, time.monotonic() - began < 10) == (0, True)
    assert re.search(r"^catalog now +no answer within 3 s$", hung.out, re.MULTILINE)


async def test_a_table_that_nobody_told_of_says_how_to_tell(here: Place) -> None:
    told = await here.sfn("status", "sales.unheard")
    assert (told.status, told.out) == (1, "")
    assert told.err.startswith("prod:sales.unheard: expected a table that the service knows, found none")
    assert "`sfn notify sales.unheard`" in told.err


async def test_a_table_with_a_slash_in_its_name_is_asked_for(here: Place) -> None:
    for name in ("sales.a%2Fb", "sales.a/b"):
        told = await here.sfn("status", name)
        assert (told.status, "found none: the inbox knows no table prod:sales.a/b:" in told.err) == (1, True)


@pytest.mark.parametrize("order", [("release", "--yes"), ("retire", "--yes"), ("adopt", "--from", "c0", "--yes")])
async def test_an_order_to_an_unknown_catalog_is_wrong_usage(here: Place, order: tuple[str, ...]) -> None:
    verb, *options = order
    told = await here.sfn(verb, "prd", *options)
    assert (told.status, told.out) == (2, "")
    assert told.err == "CATALOG: expected a configured catalog (prod), found prd; did you mean prod?\n"


async def test_letters_of_an_unknown_catalog_are_not_none(here: Place) -> None:
    for verb in ("list", "replay", "discard"):
        told = await here.sfn("dead-letters", verb, "--catalog", "prd")
        expected = "--catalog: expected a configured catalog (prod), found prd; did you mean prod?\n"
        assert (told.status, told.out, told.err) == (2, "", expected)


async def test_an_event_can_be_waited_for(here: Place) -> None:
    pointer = here.lake.commit("awaited")
    told = await here.sfn("notify", "sales.awaited", "--wait")
    assert (told.status, told.out.splitlines()[0].startswith(f"prod:sales.awaited: published {pointer}")) == (0, True)
    assert here.lake.published("awaited") == pointer
    file = here.block("obstructed")
    refused = await here.sfn("notify", "sales.obstructed", "--wait", "--timeout", "30s")
    assert refused.status == 1
    assert all(part in refused.out for part in (", foreign-file: ", "  → inspect the file, then move or delete it"))
    exact = (await here.sfn("notify", "sales.obstructed", "--wait", "--json")).json
    assert (exact["accepted"], exact["tables"][0]["outcome"]) == (1, "dead-letter")
    file.unlink()
    assert (await here.sfn("dead-letters", "discard", "--table", "sales.obstructed", "--yes")).status == 0
    missing = await here.sfn("notify", "sales.mistyped", "--wait")
    assert (missing.status, "prod:sales.mistyped: the catalog has no such table, and no file" in missing.out) == (
        1,
        True,
    )
    alone = await here.sfn("notify", "sales.awaited", "--timeout", "9s")
    assert (alone.status, "--timeout needs --wait" in alone.err) == (2, True)


async def test_a_repeated_event_is_a_duplicate(here: Place) -> None:
    here.lake.commit("repeated")
    assert "accepted" in (await here.sfn("notify", "sales.repeated", "--event-id", "e1")).out
    again = await here.sfn("notify", "sales.repeated", "--event-id", "e1", "--json")
    assert again.json == {"accepted": 0, "duplicates": 1, "ignored": 0}


async def test_an_event_says_what_the_options_say(here: Place) -> None:
    renamed = ("notify", "sales.a%2Eb", "--operation", "rename", "--destination", "sales.c", "--json")
    assert (await here.sfn(*renamed)).json["accepted"] == 2
    dropped = ("notify", "sales.gone", "--operation", "drop", "--purge", "--catalog", "prod", "--sender", "etl")
    assert (await here.sfn(*dropped)).status == 0


async def test_a_sweep_is_followed_to_its_end_and_tells_what_differed(here: Place) -> None:
    rehearsed = ("reconcile", "--dry-run", "--config", str(here.configuration))
    pointer = here.lake.commit("found")
    before = await sfn(*rehearsed)
    assert before.status == 1
    assert re.search(r"^  sales\.found +missing +no file at file://", before.out, re.MULTILINE)
    assert here.lake.published("found") is None
    told = await here.sfn("reconcile")
    assert told.status == 0
    assert re.fullmatch(
        r"prod: the sweep starts in \d+ s, at [-\d]{10} [:\d]{8}Z: two sweeps of a catalog keep a distance\n|", told.err
    )
    assert re.search(r"^  sales\.found +missing +repaired$", told.out, re.MULTILINE)
    assert here.lake.published("found") == pointer
    after = (await sfn(*rehearsed, "--json")).json["catalogs"]
    assert "sales.found" not in [one["table"] for one in after[0]["differences"]]


def file_of(here: Place, name: str) -> Path:
    return here.lake.directory(name) / "metadata" / "_sfn" / f"sales_{name}_main.ver"


def of_table(done: Done, name: str) -> dict[str, Any] | None:
    """What a command says of one table that differs."""
    (catalog,) = done.json["catalogs"]
    return next((one for one in catalog["differences"] if one["table"] == f"sales.{name}"), None)


async def test_deleted_file_is_found_by_both_kinds_of_reconcile_and_repaired(here: Place) -> None:
    pointer = await here.publish("deleted")
    file_of(here, "deleted").unlink()
    rehearsed = await sfn("reconcile", "--dry-run", "--config", str(here.configuration), "--json", "--timeout", "1m")
    foreseen = of_table(rehearsed, "deleted")
    assert foreseen is not None
    assert (rehearsed.status, foreseen["kind"]) == (1, "missing")
    told = await here.sfn("reconcile", "--json", "--timeout", "2m")
    found = of_table(told, "deleted")
    assert found is not None
    assert {key: found[key] for key in foreseen} == foreseen
    assert (told.status, found["repaired"], found["why"], told.json["catalogs"][0]["unrepaired"]) == (0, True, None, 0)
    assert told.json["catalogs"][0]["thorough"] is True
    assert here.lake.published("deleted") == pointer


async def test_table_that_was_given_up_is_repaired_once_its_cause_is_gone(here: Place) -> None:
    file = here.block("freed")
    number = await here.letter("freed")
    told = await here.sfn("reconcile", "--timeout", "2m")
    given_up = rf"given up: dead letter {number} \(foreign-file\): .+"
    assert (told.status, "not repaired" in told.out.splitlines()[0]) == (1, True)
    assert re.search(rf"^  sales\.freed +foreign-file +{given_up}$", told.out, re.MULTILINE)
    file.unlink()
    again = await here.sfn("reconcile", "--json")
    found = of_table(again, "freed")
    assert found is not None
    assert (again.status, found["kind"], found["repaired"], found["dead_letter"]) == (0, "missing", True, None)
    assert here.lake.published("freed") is not None
    (letter,) = (await here.sfn("dead-letters", "show", str(number), "--json")).json["dead_letters"]
    assert letter["status"] == "superseded"


async def test_wait_of_a_reconcile_has_an_end(here: Place) -> None:
    refused = await here.sfn("reconcile", "--no-wait", "--timeout", "9s")
    assert (refused.status, "--timeout needs --wait" in refused.err) == (2, True)
    for more in (("--dry-run",), ("--url", here.url)):
        ended = await sfn("reconcile", "--config", str(here.configuration), "--timeout", "1ms", *more)
        assert ended.status == 1
        assert re.search(r"(no end|has not ended) after 0 s", ended.err)


async def test_a_catalog_that_is_not_configured_is_named_with_those_that_are(here: Place) -> None:
    told = await here.sfn("reconcile", "--catalog", "prd")
    expected = "--catalog: expected a configured catalog that can be queried (prod), found prd; did you mean prod?\n"
    assert (told.status, told.out, told.err) == (2, "", expected)
    offline = await sfn("reconcile", "--dry-run", "--catalog", "prd", "--config", str(here.configuration))
    assert offline == told


async def test_a_dead_letter_is_listed_shown_and_replayed(here: Place) -> None:
    file = here.block("blocked")
    number = await here.letter("blocked")
    listed = await here.sfn("dead-letters", "list", "--reason", "foreign-file", "--newer-than", "1h")
    assert re.search(rf"^ *{number}  foreign-file  prod:sales\.blocked +\d+ .* ago", listed.out, re.MULTILINE)
    assert (await here.sfn("dead-letters", "list", "--older-than", "1h")).out == "no open dead letters\n"
    shown = await here.sfn("dead-letters", "show", str(number))
    assert f"dead letter {number}: foreign-file, open" in shown.out
    assert str(file) in shown.out
    (exact,) = (await here.sfn("dead-letters", "show", str(number), "--json")).json["dead_letters"]
    assert exact["remedy"] == f"inspect the file, then move or delete it; then `sfn dead-letters replay {number}`"
    assert exact["remedy"] in shown.out
    status = await here.sfn("status", "--exit-code")
    assert status.status == 1
    assert "  ! 1 dead letter of prod:sales.blocked (foreign-file) since " in status.out
    assert f"      → sfn dead-letters show {number}\n" in status.out
    assert f"→ sfn dead-letters replay {number}" in (await here.sfn("status", "sales.blocked")).out
    file.unlink()
    replayed = await here.sfn("dead-letters", "replay", str(number))
    assert (replayed.status, replayed.err) == (0, "")
    assert replayed.out.startswith("queued 1 of 1 for another attempt;")
    await here.lake.until_published("blocked")
    again = await here.sfn("dead-letters", "replay", str(number))
    assert (again.status, again.out) == (1, "")
    assert re.fullmatch(
        rf"dead letter {number} is closed \(replayed .+ ago\); sales\.blocked has no open one\n", again.err
    )
    unknown = await here.sfn("dead-letters", "discard", "4711")
    assert (unknown.status, unknown.out) == (1, "")
    assert unknown.err == "there is no dead letter 4711: `sfn dead-letters list` shows the open ones\n"


async def test_many_are_discarded_only_by_who_says_so(here: Place) -> None:
    files = [here.block(name) for name in ("lost", "missed")]
    for name in ("lost", "missed"):
        await here.letter(name)
    bulk = ("dead-letters", "discard", "--reason", "foreign-file", "--catalog", "prod")
    silent = await here.sfn(*bulk)
    assert (silent.status, silent.out) == (2, "")
    assert silent.err == "discard 2 dead letters? Refusing to ask on a non-interactive terminal. Pass --yes.\n"
    refused = await answered("n", *bulk, "--config", str(here.configuration), "--url", here.url)
    assert (refused.status, refused.err.endswith("canceled: nothing was changed\n")) == (1, True)
    discarded = await answered("y", *bulk, "--config", str(here.configuration), "--url", here.url)
    assert (discarded.status, discarded.out) == (0, "discarded 2 of 2\n")
    nothing = await here.sfn(*bulk, "--json")
    assert (nothing.status, nothing.json) == (0, {"discarded": 0, "skipped": []})
    assert nothing.err == "no open dead letter matches: nothing to discard\n"
    kept = (await here.sfn("dead-letters", "list", "--status", "discarded", "--json")).json["dead_letters"]
    assert {letter["table"] for letter in kept} >= {"sales.lost", "sales.missed"}
    assert all(letter["actor"].startswith(actor_name()) for letter in kept)
    for file in files:
        file.unlink()


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay",),
        ("replay", "1", "--all"),
        ("replay", "1", "--reason", "poison"),
        ("replay", "--all", "--reason", "poison"),
        ("discard", "--reason", "poisson"),
        ("list", "--older-than", "5 parsecs"),
        ("list", "--table", "sales."),
        ("show",),
    ],
)
async def test_which_letters_are_meant_is_never_guessed(here: Place, arguments: tuple[str, ...]) -> None:
    told = await here.sfn("dead-letters", *arguments)
    assert (told.status, told.out) == (2, "")
    assert "Usage: sfn dead-letters" in told.err


async def test_long_lists_come_a_page_at_a_time(here: Place) -> None:
    files = [here.block(name) for name in ("page1", "page2", "page3")]
    for name in ("page1", "page2", "page3"):
        await here.letter(name)
    told = await here.sfn("dead-letters", "list", "--limit", "2", "--json")
    assert len(told.json["dead_letters"]) == 2
    assert told.err == "there are more than 2: add a filter, or pass --limit or --all\n"
    every = await here.sfn("dead-letters", "list", "--all", "--json")
    assert (len(every.json["dead_letters"]), every.json["next"], every.err) == (3, None, "")
    assert (await here.sfn("dead-letters", "discard", "--all", "--yes")).out == "discarded 3 of 3\n"
    for file in files:
        file.unlink()


async def test_what_operators_did_is_on_record(here: Place) -> None:
    assert (await here.sfn("release", "prod", "--yes")).out == "prod: 0 tables released\n"
    newest, *_ = (await here.sfn("audit-log", "--limit", "1", "--json")).json["entries"]
    assert (newest["action"], newest["target"], newest["count"]) == ("release", "prod", 0)
    assert newest["actor"].startswith(actor_name())
    told = await here.sfn("audit-log", "--limit", "1")
    assert f"there are more: pass --before {newest['id']}\n" == told.err


async def test_the_whole_service_is_one_page(here: Place) -> None:
    await here.publish("counted")
    told = await here.sfn("status", "--json")
    assert told.json["verdict"] == {"state": "well", "since": None, "problems": []}
    assert told.json["catalogs"][0]["tables"]["scheduled"] >= 1
    page = await here.sfn("status")
    assert page.out.startswith("all is well: ")
    assert f" at {here.url}, up " in page.out


async def test_tables_are_listed_by_state_and_by_glob(here: Place) -> None:
    for name in ("listed_one", "listed_two"):
        await here.publish(name)
    file = here.block("listed_dead")
    number = await here.letter("listed_dead")
    found = await here.sfn("tables", "sales.listed_*")
    lines = [" ".join(line.split()) for line in found.out.splitlines()]
    assert (found.status, lines[0], lines[-1]) == (0, "TABLE STATE WAITS NEXT ATTEMPT CAUSE", "3 tables")
    assert lines[1].startswith("prod:sales.listed_dead dead ")
    assert f"dead letter {number} (foreign-file): " in lines[1]
    assert lines[2].startswith("prod:sales.listed_one scheduled - in ")
    dead = await here.sfn("tables", "**listed_*", "--dead", "--json", "--exit-code")
    assert (dead.status, dead.json["has_more"]) == (1, False)
    (one,) = dead.json["tables"]
    assert (one["table"], one["dead_letter"], one["late"]) == ("sales.listed_dead", number, False)
    assert (await here.sfn("status", "prod:sales.listed_dead", "--exit-code")).status == 1
    none = await here.sfn("tables", "--held", "--exit-code")
    assert (none.status, none.out) == (0, "no table is held\n")
    first = await here.sfn("tables", "sales.listed_*", "--limit", "1")
    assert first.out.splitlines()[-1] == "the first 1; more with --limit or --all"
    assert len((await here.sfn("tables", "sales.listed_*", "--all", "--json")).json["tables"]) == 3
    for wrong in (("--state", "late"), ("--sort", "age"), ("--limit", "0")):
        assert (await here.sfn("tables", *wrong)).status == 2
    assert "did you mean prod?" in (await here.sfn("tables", "--catalog", "prot")).err
    file.unlink()
    assert (await here.sfn("dead-letters", "discard", "--table", "sales.listed_dead", "--yes")).status == 0


async def test_a_look_again_and_again_ends_with_ctrl_c(here: Place) -> None:
    told = await interrupted("LAST SWEEP", "status", "--watch", "--config", str(here.configuration), "--url", here.url)
    assert told.status == 0
    assert "Traceback" not in told.out


async def test_ctrl_c_leaves_a_sweep_to_the_service(tmp_path: Path) -> None:
    async with place(tmp_path, more='[sweep]\nevery = "off"\n') as here:
        await here.lake.close()
        told = await interrupted(
            "the sweep waits: the catalog does not answer",
            *("reconcile", "--config", str(here.configuration), "--url", here.url),
        )
        assert (told.status, told.out.splitlines()[-1]) == (
            130,
            "stopped waiting: the sweep goes on in the service, `sfn status` shows its progress",
        )
        pointer = here.lake.commit("orders")
        await here.lake.open()
        await until(lambda: here.lake.published("orders") == pointer, 60)
        assert (await here.sfn("reconcile", "--no-wait")).out.startswith("sweep requested: prod;")


async def test_a_terminal_gets_colours_and_tables(here: Place) -> None:
    shown = await on_terminal("status", "--config", str(here.configuration), "--url", here.url)
    assert "\x1b[1;32mall is well" in shown
    assert "─────" in shown
    assert all(len(line) <= 100 for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).splitlines())


async def test_a_probe_needs_no_token(here: Place) -> None:
    for more in ((), ("--ready",)):
        told = await sfn("healthcheck", "--url", here.url, *more)
        assert (told.status, told.out, told.err) == (0, "", "")


async def test_a_wrong_token_says_what_to_do(here: Place, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("not-this-one")
    told = await sfn("status", "--url", here.url, "--token-file", str(token))
    assert (told.status, told.out) == (1, "")
    assert "found status 401: a valid bearer token is needed; pass --token-file, or the --config" in told.err
    assert "not-this-one" not in told.err


async def test_a_configuration_is_proven_beside_the_service_that_has_it(here: Place) -> None:
    told = await sfn("check", "--config", str(here.configuration))
    assert (told.status, told.err) == (0, "")
    assert f"in use by process {here.daemon.process.pid};" in told.out
    assert told.out.endswith("passed: no errors, 0 warnings\n")


async def test_several_catalogs_are_not_guessed(tmp_path: Path) -> None:
    second = f"[catalogs.dev]\nuri = 'http://127.0.0.1:1'\n[stores.other]\nprefix = '{tmp_path}/other'\n"
    async with place(tmp_path, more=second) as here:
        told = await here.sfn("status", "sales.orders")
        assert (told.status, told.err) == (2, "--catalog: expected one of prod, dev, found none\n")


async def test_what_the_brake_holds_is_looked_at_and_released(tmp_path: Path) -> None:
    async with place(tmp_path, catalog='max_drops = 0\nabsence_delay = "0s"', more='[sweep]\nevery = "off"\n') as here:
        await here.publish("orders")
        here.lake.drop("orders")
        await here.sfn("notify", "sales.orders", "--operation", "drop")
        await here.daemon.until_logged("settled", table="prod:sales.orders", outcome="dead")
        status = await here.sfn("status")
        assert "  ! prod: the drop limit has held 1 table that would be dropped or rolled back" in status.out
        assert "sfn release prod" in status.out
        story = await here.sfn("status", "sales.orders", "--exit-code")
        assert (story.status, "held by the drop limit" in story.out) == (1, True)
        (held,) = (await here.sfn("dead-letters", "list", "--json")).json["dead_letters"]
        told = await here.sfn("reconcile", "--json", "--timeout", "2m")
        exact = of_table(told, "orders")
        assert exact is not None
        assert (told.status, exact["kind"], exact["repaired"], exact["held"]) == (1, "absent", False, True)
        assert (exact["reason"], exact["dead_letter"]) == ("held-drop", held["id"])
        assert exact["why"] == "held by the drop limit: sfn release prod"
        assert here.lake.published("orders") is not None
        asked = await here.sfn("release", "prod")
        assert (asked.status, asked.out) == (2, "")
        lines = asked.err.splitlines()
        assert lines[0] == "prod: 0 passed within the last hour, of at most 0 drops and rollbacks"
        assert lines[1].startswith("prod: 1 table held, the first ")
        assert lines[2].startswith("  prod:sales.orders: dead letter ")
        assert lines[3].startswith("prod: let these drops and rollbacks pass? Refusing to ask")
        assert (await here.sfn("release", "prod", "--yes", "--json")).json == {"released": 1}
        await until(lambda: here.lake.published("orders") is None)
        swept = (await here.sfn("reconcile", "--catalog", "prod", "--json")).json["catalogs"]
        assert [(one["name"], one["state"]) for one in swept] == [("prod", "ended")]


@asynccontextmanager
async def moved(before: Place) -> AsyncGenerator[tuple[Place, str]]:
    """Serve the tables of `before` by a catalog with another id; yield the place and the id in its files."""
    text = before.configuration.read_text()
    owner = (await before.sfn("status", "--json")).json["catalogs"][0]["catalog_id"]
    before.configuration.write_text(text.replace("[catalogs.prod]", '[catalogs.prod]\ncatalog_id = "new"'))
    before.daemon.process.terminate()
    assert await before.daemon.ended() == 0
    async with serving(before.configuration) as daemon:
        here = Place(before.lake, daemon, before.configuration)
        await here.sfn("notify", "sales.another")  # the sweep of the start waits for 30 s after the one before
        await daemon.until_logged("catalog changed", files=owner)
        yield here, owner


async def test_files_of_a_catalog_that_moved_are_warned_of_and_adopted(tmp_path: Path) -> None:
    async with place(tmp_path) as before:
        await before.publish("orders")
        async with moved(before) as (here, owner):
            checked = await sfn("check", "--json", "--config", str(here.configuration))
            (warning,) = [one for one in checked.json["findings"] if one["severity"] == "warning"]
            assert f"`sfn adopt prod --from {owner}`" in warning["remedy"]
            status = await here.sfn("status")
            assert f"  ! prod: its files carry the catalog_id {owner}, but the catalog's is now new" in status.out
            assert f"→ sfn adopt prod --from {owner}" in status.out
            before.lake.commit("orders")
            await here.letter("orders")
            assert "its files carry" in (await here.sfn("status")).out
            assert f"--from {owner}" in (await here.sfn("dead-letters", "list")).out
            assert f"→ sfn adopt prod --from {owner} sales.orders" in (await here.sfn("status", "sales.orders")).out
            adopted = await here.sfn("adopt", "prod", "sales.orders", "--from", owner, "--yes")
            assert adopted.out.startswith("prod: 1 table queued;")
            await before.lake.until_published("orders")
            assert (await here.sfn("adopt", "prod", "sales.oders", "--from", owner, "--yes")).status == 1
            assert "its files carry" not in (await here.sfn("status")).out


async def test_a_catalog_that_moved_adopts_before_any_commit(tmp_path: Path) -> None:
    async with place(tmp_path) as before:
        await before.publish("orders")
        async with moved(before) as (here, owner):
            typed = await here.sfn("adopt", "prod", "--from", "nonsense", "--yes")
            refusal = f"--from: expected {owner} (the catalog_id in its files), found nonsense; pass --force to adopt"
            assert (typed.status, typed.out, typed.err) == (2, "", f"{refusal}\n")
            adopted = await here.sfn("adopt", "prod", "--from", owner, "--yes")
            assert adopted.out.startswith("prod: 1 table queued;")
            assert "its files carry" not in (await here.sfn("status")).out
            await here.daemon.until_logged("settled", table="prod:sales.orders", outcome="done")
            before.lake.commit("orders")
            await here.sfn("notify", "sales.orders")
            await before.lake.until_published("orders")


async def test_a_catalog_that_retires_leaves_no_file_until_that_is_undone(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.publish("orders")
        assert (await here.sfn("retire", "prod")).status == 2
        assert here.lake.published("orders") is not None
        assert (await here.sfn("retire", "prod", "--yes")).out.startswith("prod: retired, 1 table queued;")
        await until(lambda: here.lake.published("orders") is None)
        assert "prod (retired)" in (await here.sfn("status")).out
        ignored = await here.sfn("notify", "sales.orders", "--wait")
        assert (ignored.status, ignored.err) == (0, "")
        assert ignored.out.startswith("ignored: the catalog prod is retired, so its tables get no files;")
        assert (await here.sfn("retire", "prod", "--undo")).out.startswith("prod: not retired any more, ")
        await here.lake.until_published("orders")


async def test_a_drop_is_waited_for_until_no_replica_can_lag(tmp_path: Path) -> None:
    async with place(tmp_path, lag="2s") as here:
        await here.publish("dropped")
        here.lake.drop("dropped")
        told = await here.sfn("notify", "sales.dropped", "--operation", "drop", "--wait")
        assert (told.status, told.out) == (
            0,
            "prod:sales.dropped: nothing to publish: the catalog has no such table, and its files say so\n",
        )
        # Nothing is said of what is over before the first look at it.
        assert told.err == "" or "; next check in " in told.err
        assert here.lake.published("dropped") is None


async def test_a_table_that_is_left_out_says_by_which_setting(tmp_path: Path) -> None:
    async with place(tmp_path, catalog='exclude = ["sales.tmp_*"]') as here:
        told = await here.sfn("notify", "sales.tmp_1", "--wait")
        assert (told.status, told.out) == (0, "ignored: catalogs.prod.include and exclude leave the table out\n")


async def test_a_service_that_is_away_is_told_from_one_in_trouble(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.lake.close()
        await here.sfn("notify", "sales.orders")
        await here.daemon.until_logged("catalog unreachable", catalog="prod")
        status = await here.sfn("status", "--exit-code")
        assert (status.status, "the catalog prod has not answered since " in status.out) == (1, True)
        assert f"{here.lake.uri}" in status.out
        retired = await here.sfn("retire", "prod", "--yes")
        assert retired.status == 0
        assert retired.err == "prod: the catalog does not answer; its tables' files stay unchanged until it does\n"
        checked = await sfn("check", "--config", str(here.configuration))
        assert (checked.status, checked.out.splitlines()[-1]) == (1, "1 error, 0 warnings")
        assert "→ check whether the catalog is up and listens there" in checked.out
        rehearsed = await sfn("reconcile", "--dry-run", "--config", str(here.configuration))
        assert (rehearsed.status, rehearsed.out) == (1, "")
        here.daemon.process.terminate()
        await here.daemon.ended()
        away = await here.sfn("status")
        assert (away.status, away.out) == (1, "")
        assert "expected a running service, found Connection refused; start it with `sfn serve`" in away.err
        assert (await sfn("healthcheck", "--url", here.url)).status == 1


async def test_a_dry_run_of_what_is_told_of_alone_says_that_there_is_nothing_to_compare(tmp_path: Path) -> None:
    (tmp_path / "sfn.toml").write_text(
        '[senders.etl]\nsecrets = { main = "a-secret" }\ncatalog = "outside"\n'
        '[catalogs.outside]\ntype = "events"\ncatalog_id = "outside"\nallowed_locations = ["/lake"]\n'
    )
    told = await sfn("reconcile", "--dry-run", "--config", str(tmp_path / "sfn.toml"))
    assert (told.status, told.out) == (2, "")
    assert told.err.startswith("outside: expected a catalog that can be queried, found an event-only catalog")


SENDERS = f"""
[senders.hook]
scheme = "standard-webhooks"
secrets_file = "{{folder}}/secrets"
catalog = "prod"
[senders.polaris]
scheme = "hmac-sha256"
signature_header = "X-Polaris-Signature-256"
secrets.main = "{TEXT}"
catalog = "prod"
[senders.local]
scheme = "none"
catalog = "prod"
"""


@pytest.fixture(name="signed", scope="module")
async def fixture_signed(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place]:
    folder = tmp_path_factory.mktemp("signed")
    (folder / "secrets").write_text(f"{WEBHOOK}\n")
    async with place(folder, more=SENDERS.format(folder=folder)) as made:
        yield made


@pytest.mark.parametrize("sender", ["hook", "polaris", "local"])
async def test_notify_speaks_as_a_sender_that_signs_or_shows_nothing(signed: Place, sender: str) -> None:
    signed.lake.commit(sender)
    told = await signed.sfn("notify", f"sales.{sender}", "--sender", sender, "--wait")
    assert (told.status, told.err) == (0, "")
    await signed.lake.until_published(sender)


async def test_notify_with_an_unknown_secret_says_what_to_do(signed: Place, tmp_path: Path) -> None:
    configuration = tmp_path / "sfn.toml"
    configuration.write_text(signed.configuration.read_text().replace(TEXT, "another text of sixteen"))
    settings = ("--config", str(configuration), "--url", signed.url)
    told = await sfn("notify", "sales.orders", "--sender", "polaris", *settings)
    assert told.status == 1
    assert "expected a valid, recent signature, found status 401" in told.err
    assert "another text" not in told.err


async def test_check_names_each_sender_and_how_it_shows_who_it_is(signed: Place) -> None:
    told = (await sfn("check", "--config", str(signed.configuration), "--json")).json
    found = {one["where"]: one["text"] for one in told["findings"] if one["where"].startswith("senders.")}
    assert found == {
        "senders.etl": "bearer, 1 token",
        "senders.hook": "standard-webhooks, 1 secret",
        "senders.polaris": "hmac-sha256 in X-Polaris-Signature-256, 1 secret",
        "senders.local": "none: any request without a token counts as this sender's",
    }
