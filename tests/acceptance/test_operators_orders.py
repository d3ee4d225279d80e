"""What operators order with the command line when something is wrong, each on a service of its own."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.command import Place, place, sfn
from tests.support.processes import until
from tests.support.service import serving


async def test_several_catalogs_are_not_guessed(tmp_path: Path) -> None:
    second = f"[catalogs.dev]\nuri = 'http://127.0.0.1:1'\n[stores.other]\nprefix = '{tmp_path}/other'\n"
    async with place(tmp_path, more=second) as here:
        told = await here.sfn("status", "sales.orders")
        assert (told.status, told.err) == (
            2,
            "--catalog: expected one of prod, dev, found none\n",
        )


async def test_what_the_brake_holds_is_looked_at_and_released(tmp_path: Path) -> None:
    async with place(tmp_path, catalog='max_drops = 0\nabsence_delay = "0s"', more='[sweep]\nevery = "off"\n') as here:
        await here.publish("orders")
        here.lake.drop("orders")
        await here.sfn("notify", "sales.orders", "--operation", "drop")
        await here.daemon.until_logged("settled", table="sales.orders", outcome="dead")
        status = await here.sfn("status")
        assert "  ! prod: the drop limit holds 1 table for an operator" in status.out
        assert "sfn release prod" in status.out
        story = await here.sfn("status", "sales.orders", "--exit-code")
        assert (story.status, "held by the drop limit" in story.out) == (1, True)
        assert (await here.sfn("release", "prod", "--json")).json == {"released": 1}
        await until(lambda: here.lake.published("orders") is None)
        swept = (await here.sfn("reconcile", "--catalog", "prod", "--json")).json["catalogs"]
        assert [(one["name"], one["state"]) for one in swept] == [("prod", "ended")]


async def test_files_of_a_catalog_that_moved_are_warned_of_and_adopted(tmp_path: Path) -> None:
    async with place(tmp_path) as before:
        await before.publish("orders")
        text = before.configuration.read_text()
        owner = (await before.sfn("status", "--json")).json["catalogs"][0]["catalog_id"]
        before.configuration.write_text(text.replace("[catalogs.prod]", '[catalogs.prod]\ncatalog_id = "new"'))
        before.daemon.process.terminate()
        assert await before.daemon.ended() == 0
        checked = await sfn("check", "--json", "--config", str(before.configuration))
        (warning,) = [one for one in checked.json["findings"] if one["severity"] == "warning"]
        assert f"`sfn adopt prod --from {owner}`" in warning["remedy"]
        async with serving(before.configuration) as daemon:
            here = Place(before.lake, daemon, before.configuration)
            await here.sfn("notify", "sales.another")  # the sweep of the start waits for 30 s after the one before
            await daemon.until_logged("catalog changed", files=owner)
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
        text = before.configuration.read_text()
        owner = (await before.sfn("status", "--json")).json["catalogs"][0]["catalog_id"]
        before.configuration.write_text(text.replace("[catalogs.prod]", '[catalogs.prod]\ncatalog_id = "new"'))
        before.daemon.process.terminate()
        assert await before.daemon.ended() == 0
        async with serving(before.configuration) as daemon:
            here = Place(before.lake, daemon, before.configuration)
            await here.sfn("notify", "sales.another")  # the sweep of the start waits for 30 s after the one before
            await daemon.until_logged("catalog changed", files=owner)
            typed = await here.sfn("adopt", "prod", "--from", "nonsense", "--yes")
            refusal = f"--from: expected {owner} (the catalog_id in its files), found nonsense; pass --force to adopt"
            assert (typed.status, typed.out, typed.err) == (2, "", f"{refusal}\n")
            adopted = await here.sfn("adopt", "prod", "--from", owner, "--yes")
            assert adopted.out.startswith("prod: 1 table queued;")
            assert "its files carry" not in (await here.sfn("status")).out
            await daemon.until_logged("settled", table="sales.orders", outcome="done")
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
            "sales.dropped: nothing to publish: the table has no live file, as in the catalog\n",
        )
        # Nothing is said of what is over before the first look at it.
        assert told.err == "" or told.err.startswith("sales.dropped: a drop is pending; next check in ")
        assert here.lake.published("dropped") is None


async def test_a_table_that_is_left_out_says_by_which_setting(tmp_path: Path) -> None:
    async with place(tmp_path, catalog='exclude = ["sales.tmp_*"]') as here:
        told = await here.sfn("notify", "sales.tmp_1", "--wait")
        assert (told.status, told.out) == (0, "ignored: catalogs.prod.include and exclude leave the table out\n")


async def test_a_service_that_is_away_is_told_from_one_in_trouble(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.lake.close()
        await here.sfn("notify", "sales.orders")
        await here.daemon.until_logged("catalog unreachable", name="prod")
        status = await here.sfn("status", "--exit-code")
        assert (status.status, "the catalog prod has failed since " in status.out) == (1, True)
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
