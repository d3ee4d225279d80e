"""What pages show works as it stands there: the README's five minutes, reading, and what senders and operators do."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pytest
from packaging.requirements import Requirement

import sfn
from sfn import errors, history
from sfn.app import catalogs
from sfn.app.storage import open_stores
from sfn.clock import SystemClock
from sfn.settings import load
from tests.shape import measures
from tests.support import command_line
from tests.support.processes import until
from tests.support.real_table import RealTable, real_table
from tests.support.service import lake

ROOT = Path(__file__).parents[2]
README = "README.md"
FIRST_TABLE = "docs/get-started/first-table.md"
HTTP_API = "docs/reference/http-api.md"
SENDING = "docs/catalogs/send-events.md"
BIN = Path(sys.executable).parent


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[str]:
    """Every command, each on one line and without the remark beside it."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [line.split("  # ")[0].rstrip() for line in lines if line and not line.startswith(" ")]


def answers(page: str) -> list[str]:
    """What is said that commands print."""
    return re.findall(r"^ +# (\{.*?\})", "".join(blocks(page, "sh")), re.MULTILINE)


# One more of them is one more to test.
DEMO, TEST, VENV, INSTALL, CHECK, SERVE, SECOND_SHELL, NOTIFY, STATUS, RESOLVE = commands(README)
(POST,) = commands(HTTP_API)
OPERATE = commands("docs/operate/runbooks/README.md")
(FIRST,) = blocks(README, "toml")
(TAKEN,) = answers(HTTP_API)
(SIGNED,) = blocks(SENDING, "bash")
(SIGNED_BY_PYTHON,) = blocks(SENDING, "python")
SENDING_TEXT = (ROOT / SENDING).read_text()
VECTOR = dict(re.findall(r"^\| ([^|]+) \| `(.+)` \|$", SENDING_TEXT, re.MULTILINE))
BODY = VECTOR["body"]


def test_its_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in (command.removeprefix("make ") for command in (DEMO, TEST)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_second_shell_has_the_surroundings_of_the_first() -> None:
    activate = VENV.split(" && ")[1]
    assert activate == SECOND_SHELL


def test_its_way_to_install_it(tmp_path: Path) -> None:
    # Everything else is there: what is tested is the package.
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", f"--target={tmp_path}"]
    subprocess.run([BIN / "python", "-m", *shlex.split(INSTALL), *offline], cwd=ROOT, check=True, timeout=120)
    where = "import sfn; print(sfn.__file__)"
    for command, expected in ((["-c", where], f"{tmp_path}/sfn/__init__.py"), (["-m", "sfn", "--version"], "sfn ")):
        surroundings = {"PYTHONPATH": str(tmp_path)}
        told = subprocess.run([BIN / "python", *command], env=surroundings, capture_output=True, text=True, check=True)
        assert told.stdout.startswith(expected)


async def test_its_five_minutes(tmp_path: Path, unused_port: int) -> None:
    """Check and serve with its settings, tell of commits both ways, look, and work as its operators do."""
    async with lake(tmp_path) as catalog:
        pointer = catalog.commit("orders")
        place = Place(tmp_path, unused_port)
        text = FIRST.replace("http://127.0.0.1:8181", catalog.uri)
        text = text.replace("/warehouse", f"{tmp_path}/warehouse")
        place.configure(f"[listener]\nport = {unused_port}\n[inbox]\nurl = 'sqlite:///{tmp_path}/inbox.db'\n{text}")
        assert "files carry the catalog_id" in await place.ran(CHECK)
        process = place.started(SERVE)
        try:
            await until(lambda: catalog.published("orders") == pointer)
            pointer = catalog.commit("orders")
            assert "accepted" in await place.ran(NOTIFY)
            await until(lambda: catalog.published("orders") == pointer)
            assert pointer in await place.ran(STATUS)
            assert (await place.ran(RESOLVE)).strip() == pointer
            pointer = catalog.commit("orders")
            event = re.sub(r'/warehouse/sales/orders/[^"]*', pointer, POST.replace("8085", str(unused_port)))
            assert pointer in event
            assert await place.ran(event) == TAKEN
            await until(lambda: catalog.published("orders") == pointer)
            found = sfn.resolve(str(catalog.directory("orders")), table="sales.orders")
            assert found.metadata_location == pointer
            said = [await place.ran(command) for command in OPERATE]
            assert "release" in said[-1]
        finally:
            process.terminate()
            assert process.wait(30) == 0


async def test_its_senders_that_sign(tmp_path: Path, unused_port: int) -> None:
    async with lake(tmp_path) as catalog:
        place = Place(tmp_path, unused_port)
        text = (FIRST + blocks(SENDING, "toml")[1]).replace("http://127.0.0.1:8181", catalog.uri)
        text = text.replace("/warehouse", f"{tmp_path}/warehouse")
        (tmp_path / "warehouse").mkdir()
        inbox = f"[inbox]\nurl = 'sqlite:///{tmp_path}/inbox.db'\n"
        place.configure(f"[listener]\nport = {unused_port}\n{inbox}{text}")
        process = place.started(SERVE)
        try:
            await until(lambda: b"started" in place.log)
            assert await place.ran(SIGNED.replace("8085", str(unused_port))) == TAKEN * 2
            (tmp_path / "sender.py").write_text(SIGNED_BY_PYTHON.replace("8085", str(unused_port)))
            assert await place.ran("python sender.py") == f"{TAKEN}\n" * 2
            await its_tests_of_a_sender(f"http://127.0.0.1:{unused_port}/v1/events")
            assert "accepted" in await place.ran("sfn notify --sender signing sales.orders")
        finally:
            process.terminate()
            # It may be asking the catalog, which lives in this loop.
            await until(lambda: process.poll() is not None, 40)
        assert process.returncode == 0


async def its_tests_of_a_sender(url: str) -> None:
    """Send what the page says to send, and compare the answers with its table."""
    names: dict[str, Any] = {}
    exec(SIGNED_BY_PYTHON.partition("\n\nbody = ")[0], names)  # noqa: S102 - it is ours
    secret, now, body = VECTOR["secret of `standard-webhooks`"], int(SystemClock().now().timestamp()), BODY.encode()
    signed = names["standard_webhooks"](secret, "msg_of_a_test", now, body)
    old = names["standard_webhooks"](secret, "msg_of_old", now - 600, body)
    sent = [(body, signed), (body, signed), (body.replace(b"orders", b"others"), signed), (body, old), (body, {})]
    expected = re.findall(r"^\| [^|]+ \| (\d{3})(?:, `([^`]+)`)? \|$", SENDING_TEXT, re.MULTILINE)
    assert len(expected) == len(sent)
    async with httpx.AsyncClient(trust_env=False) as client:
        for (status, part), (content, headers) in zip(expected, sent, strict=True):
            answer = await client.post(url, content=content, headers={"Content-Type": "application/json", **headers})
            assert (answer.status_code, part in answer.text) == (int(status), True), (headers, answer.text)


def test_its_examples_of_signatures() -> None:
    names: dict[str, Any] = {}
    exec(SIGNED_BY_PYTHON.partition("\n\nbody = ")[0], names)  # noqa: S102 - it is ours
    message, timestamp = VECTOR["`webhook-id`, `webhook-timestamp`"].split("`, `")
    signed = names["standard_webhooks"](VECTOR["secret of `standard-webhooks`"], message, int(timestamp), BODY.encode())
    assert signed["webhook-signature"] == VECTOR["`webhook-signature`"]
    signed = names["hmac_sha256"](VECTOR["secret of `hmac-sha256`"], "X-Any", BODY.encode())
    assert signed == {"X-Any": VECTOR["header of `hmac-sha256`"]}
    assert f"has {len(BODY)} bytes" in SENDING_TEXT


async def test_its_other_settings_are_understood(tmp_path: Path) -> None:
    file = tmp_path / "sfn.toml"
    (pyiceberg, on_store), (event_only,) = (
        blocks("docs/catalogs/pyiceberg.md", "toml"),
        blocks("docs/catalogs/event-only.md", "toml"),
    )
    file.write_text(on_store)
    assert {one.endpoint for one in load(file, {}).stores.values()} == {"https://minio.example.org:9000"}
    others = pyiceberg + event_only.replace('type = "events"', 'type = "events"')  # until the setting has its new name
    file.write_text((FIRST + others).replace("[senders.ci]", '[senders.ci]\ncatalog = "prod"'))
    settings = load(file, {})
    catalogs.check_adapters(settings)
    assert [one.type for one in settings.catalogs.values()] == ["rest", "pyiceberg", "events"]
    whole, vending, stored, container = blocks(FIRST_TABLE, "toml")
    assert whole == FIRST
    file.write_text(container)
    assert not load(file, {}).listener.is_loopback
    for page in (vending, *blocks("docs/stores/vended-credentials.md", "toml")):
        file.write_text(page)
        assert not load(file, {}).lacks_stores
    file.write_text(vending + stored)
    assert load(file, {}).stores["lake"].scheme == "s3"
    (fetched,) = blocks("docs/catalogs/nats.md", "toml")
    file.write_text(FIRST + fetched)
    assert load(file, {}).catalogs_of("pull.lakekeeper") == {"prod": "prod"}
    (facade,), (included,) = blocks("docs/read/facade.md", "toml"), blocks("docs/operate/settings.md", "toml")
    file.write_text(FIRST.replace("[catalogs.prod]", included) + facade)
    settings = load(file, {})
    assert settings.facade.is_on
    assert settings.catalogs["prod"].include == ("sales.**", "finance.ledger")


async def test_the_stores_of_their_pages_are_understood(tmp_path: Path) -> None:
    pages = ("docs/stores/s3.md", "docs/stores/s3-compatible.md", "docs/stores/local.md")
    shown = "\n".join(block for page in pages for block in blocks(page, "toml"))
    file = tmp_path / "sfn.toml"
    file.write_text(f'[catalogs.prod]\nuri = "https://catalog"\n{shown}')
    settings = load(file, {})
    async with open_stores(settings) as opened:
        assert sorted(opened.stores) == ["file:///lake", "s3://lake/warehouse", "s3://onprem"]


@dataclass(frozen=True)
class Place:
    """A folder with a configuration, where commands run as its reader runs them."""

    folder: Path
    port: int

    def configure(self, text: str) -> None:
        (self.folder / "sfn.toml").write_text(text)

    @property
    def log(self) -> bytes:
        return (self.folder / "log").read_bytes()

    def started(self, command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("wb") as log:
            line = [BIN / part if part == "sfn" else part for part in shlex.split(command)]
            return subprocess.Popen(line, cwd=self.folder, env=self._surroundings(), stderr=log)

    async def ran(self, command: str) -> str:
        """What a command prints, which must end well; paths of the README are those of this folder."""
        here = command.replace(" /warehouse", f" {self.folder}/warehouse")
        run = partial(subprocess.run, ["/bin/sh", "-c", here], cwd=self.folder, env=self._surroundings())
        done = await anyio.to_thread.run_sync(partial(run, capture_output=True, text=True, check=False, timeout=60))
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return str(done.stdout)

    def _surroundings(self) -> dict[str, str]:
        return {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(self.folder)}


@pytest.fixture
def unused_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_links_lead_somewhere() -> None:
    assert list(measures.broken_links(ROOT)) == []


ERRORS = "docs/reference/errors.md"


@pytest.fixture(name="made", scope="module")
def fixture_made(tmp_path_factory: pytest.TempPathFactory) -> RealTable:
    return real_table(tmp_path_factory.mktemp("lake"))


def test_python_of_the_page_runs_without_warnings(made: RealTable) -> None:
    (block,) = blocks("docs/read/python-api.md", "python")
    code = block.replace("/warehouse/sales/orders", made.directory)
    told = subprocess.run([BIN / "python", "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert made.pointer in told.stdout


@pytest.mark.parametrize("command", blocks("docs/read/command-line.md", "sh")[0].splitlines())
def test_commands_of_the_page_run_in_a_shell(made: RealTable, command: str) -> None:
    here = command.replace("/warehouse/sales/orders", made.directory)
    told = subprocess.run(
        ["/bin/sh", "-c", here], env={"PATH": f"{BIN}:/usr/bin:/bin"}, capture_output=True, check=True
    )
    assert told.stderr == b""


def test_duckdb_gets_its_extensions_without_a_network() -> None:
    page = "docs/read/duckdb.md"
    (install,), (code,) = blocks(page, "console"), blocks(page, "py")
    packages = [Requirement(one) for one in shlex.split(install)[3:]]
    assert {str(one.specifier) for one in packages} == {f"=={version('duckdb')}"}
    code += "print(*connection.sql('SELECT extension_name FROM duckdb_extensions() WHERE loaded').fetchall())"
    done = subprocess.run([BIN / "python", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert {name for one in packages if (name := one.name.rpartition("-")[2]) not in done.stdout} == {"duckdb"}


def test_it_lists_every_refusal() -> None:
    section = (ROOT / ERRORS).read_text().partition("## What is refused")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`([A-Z]\w+)`", section))
    refusals = {name for name in sfn.__all__ if issubclass(vars(errors).get(name, object), errors.Unreadable)}
    assert refusals - listed == {"Unreadable"} - listed


PYTHON, SHELL = "docs/read/python-api.md", "docs/read/command-line.md"
EXAMPLE = "/warehouse/sales/orders"


def test_python_of_a_page_finds_the_table_and_its_history(made: RealTable, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks(PYTHON, "python")
    names: dict[str, object] = {}
    exec(block.replace(EXAMPLE, made.directory), names)  # noqa: S102 - it is ours
    assert getattr(names["found"], "metadata_location", None) == made.pointer
    told = [commit.metadata_location for commit in history(made.directory)]
    assert re.findall(r"file://\S+", capsys.readouterr().out) == told


async def test_commands_of_the_page_print_an_answer(made: RealTable) -> None:
    (block,) = blocks(SHELL, "sh")
    for line in block.splitlines():
        command, *arguments = shlex.split(line.partition("  # ")[0].replace(EXAMPLE, made.directory))
        told = await command_line.sfn(*arguments)
        assert (command, told.status, told.err) == ("sfn", 0, ""), line
        assert told.out
