"""Operators at work with the command line on a real service."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from sfn.cli.client import actor_name
from tests.acceptance.command import Place, answered, interrupted, on_terminal, place, sfn
from tests.support.processes import until


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


async def test_a_table_that_nobody_told_of_says_how_to_tell(here: Place) -> None:
    told = await here.sfn("status", "sales.unheard")
    assert (told.status, told.out) == (1, "")
    assert told.err.startswith("prod:sales.unheard: expected a table that the service knows, found none")
    assert "`sfn notify sales.unheard`" in told.err


async def test_a_table_with_a_slash_in_its_name_is_asked_for(here: Place) -> None:
    for name in ("sales.a%2Fb", "sales.a/b"):
        told = await here.sfn("status", name)
        assert (told.status, "found none: the inbox knows no table prod:sales.a/b:" in told.err) == (1, True)


@pytest.mark.parametrize("order", [("release",), ("retire", "--yes"), ("adopt", "--from", "c0", "--yes")])
async def test_an_order_to_an_unknown_catalog_is_wrong_usage(here: Place, order: tuple[str, ...]) -> None:
    verb, *options = order
    told = await here.sfn(verb, "prd", *options)
    assert (told.status, told.out) == (2, "")
    assert told.err == "CATALOG: expected a configured catalog (prod), found prd; did you mean prod?\n"


async def test_letters_of_an_unknown_catalog_are_not_none(here: Place) -> None:
    for verb in ("list", "replay", "discard"):
        told = await here.sfn("dead-letters", verb, "--catalog", "prd")
        assert (told.status, told.out) == (1, "")
        assert "no catalog of that name is configured; did you mean prod?" in told.err


async def test_an_event_can_be_waited_for(here: Place) -> None:
    pointer = here.lake.commit("awaited")
    told = await here.sfn("notify", "sales.awaited", "--wait")
    assert (told.status, told.out.splitlines()[0].startswith(f"sales.awaited: published {pointer}")) == (0, True)
    assert here.lake.published("awaited") == pointer
    file = here.block("obstructed")
    refused = await here.sfn("notify", "sales.obstructed", "--wait", "--timeout", "30s")
    assert (refused.status, ", foreign-file: " in refused.out, "  → move the file away" in refused.out) == (
        1,
        True,
        True,
    )
    exact = (await here.sfn("notify", "sales.obstructed", "--wait", "--json")).json
    assert (exact["accepted"], exact["tables"][0]["outcome"]) == (1, "dead-letter")
    file.unlink()
    assert (await here.sfn("dead-letters", "discard", "--table", "sales.obstructed", "--yes")).status == 0
    missing = await here.sfn("notify", "sales.mistyped", "--wait")
    assert (missing.status, "sales.mistyped: nothing to publish: the catalog has no such" in missing.out) == (0, True)
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
    assert re.search(r"^  sales\.found +new$", told.out, re.MULTILINE)
    await until(lambda: here.lake.published("found") == pointer)
    after = (await sfn(*rehearsed, "--json")).json["catalogs"]
    assert "sales.found" not in [one["table"] for one in after[0]["differences"]]


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
    assert exact["remedy"] == f"move the file away, then `sfn dead-letters replay {number}`"
    assert exact["remedy"] in shown.out
    status = await here.sfn("status", "--exit-code")
    assert status.status == 1
    assert "  ! 1 dead letter: 1 foreign-file\n      → sfn dead-letters list --by-cause\n" in status.out
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
    assert (nothing.status, nothing.json) == (0, {"discarded": 0, "passed": []})
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
    assert told.err == "there are more than 2: add a filter, or pass --limit 0 for all\n"
    every = await here.sfn("dead-letters", "list", "--limit", "0", "--json")
    assert (len(every.json["dead_letters"]), every.json["next"], every.err) == (3, None, "")
    assert (await here.sfn("dead-letters", "discard", "--all", "--yes")).out == "discarded 3 of 3\n"
    for file in files:
        file.unlink()


async def test_what_operators_did_is_on_record(here: Place) -> None:
    assert (await here.sfn("release", "prod")).out == "prod: 0 tables released\n"
    newest, *_ = (await here.sfn("audit", "--limit", "1", "--json")).json["entries"]
    assert (newest["action"], newest["target"], newest["count"]) == ("release", "prod", 0)
    assert newest["actor"].startswith(actor_name())
    told = await here.sfn("audit", "--limit", "1")
    assert f"there are more: pass --before {newest['id']}\n" == told.err


async def test_the_whole_service_is_one_page(here: Place) -> None:
    await here.publish("counted")
    told = await here.sfn("status", "--json")
    assert told.json["attention"] == []
    assert told.json["catalogs"][0]["tables"]["scheduled"] >= 1
    page = await here.sfn("status")
    assert page.out.startswith("all is well: ")
    assert f" at {here.url}, up " in page.out


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
        await until(lambda: here.lake.published("orders") == pointer)
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
