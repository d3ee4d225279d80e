"""Who may write below one root, or ask a facade, has it show and open nothing else."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sfn.sfnfile.document import DocumentState, Link
from tests.integration.facade import MIB, World, facing, interpreter, opens, planted, weigh
from tests.support.facade import shown
from tests.support.programs import installed
from tests.support.table_directory import Directory
from tests.unit.test_facade_routes import WRITES


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if (strace := installed("strace")) is None:
        pytest.skip("strace is missing: on Debian and Ubuntu, apt-get install strace")
    folder = tmp_path_factory.mktemp("attacks").resolve()
    ours, other, outside = (folder / name for name in ("ours", "other", "outside"))
    for path, name in ((ours / "good", "good"), (other / "theirs", "theirs"), (outside / "secret", "secret")):
        place = shown(path, f"sales.{name}", metadata_file_path=f"file:{path}/metadata/00001-a.metadata.json")
        place.metadata(location=f"file:{path}", comment="good" if name == "good" else "canary")
    log = folder / "strace"
    launcher = (strace, "-D", "-f", "-qq", "-y", "-e", "trace=open,openat,openat2,creat", "-o", log)
    with facing(folder, ours, other, launcher=launcher) as facade:
        world = World(ours, other, outside, facade)
        assert world.ask(ours / "good").status_code == httpx.codes.OK
        assert world.ask(other / "theirs").status_code == httpx.codes.OK
        began = len(opens(log))
        yield world
        assert world.ask(ours / "good").status_code == httpx.codes.OK
        found = opens(log)[began:]
    # It sees what is opened, by one call and name by name.
    assert ours / "good" / "metadata" / "_sfn" / "sales_good_main.ver" in found
    assert ours / "linked" / "inner" in found
    assert [path for path in found if path.is_relative_to(outside)] == []
    # What it looks at when it needs much memory.
    known = (ours, other, *interpreter(), Path("/proc/sys/vm/overcommit_memory"))
    assert [path for path in found if not any(path.is_relative_to(one) for one in known)] == []


@pytest.mark.parametrize(
    "location",
    [
        "file:{outside}/secret/metadata/00001-a.metadata.json",
        "{outside}/secret/metadata/00001-a.metadata.json",
        "file:{other}/theirs/metadata/00001-a.metadata.json",
        "file:{ours}/../outside/secret/metadata/00001-a.metadata.json",
        "file:{ours}/%2e%2e/outside/secret/metadata/00001-a.metadata.json",
        "file:{ours}/..%2Foutside/secret/metadata/00001-a.metadata.json",
        "file://localhost{outside}/secret/metadata/00001-a.metadata.json",
        "local://{outside}/secret/metadata/00001-a.metadata.json",
        "simplecache::file://{outside}/secret/metadata/00001-a.metadata.json",
        "http://127.0.0.1:{port}/x",
        "s3://127.0.0.1:{port}/x",
        "memory://x/y",
        "metadata/00001-a.metadata.json",
        "/etc/passwd",
        "/proc/self/environ",
    ],
)
def test_an_sfn_file_leads_to_no_metadata_elsewhere(world: World, location: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.setblocking(False)
        places = {"ours": world.ours, "other": world.other, "outside": world.outside}
        place = planted(world, "leading", metadata_file_path=location.format(**places, port=canary.getsockname()[1]))
        world.refuses(place.path)
        with pytest.raises(BlockingIOError):
            canary.accept()


@pytest.mark.parametrize("state", [DocumentState.RENAMED, DocumentState.MOVED])
@pytest.mark.parametrize("folder", ["outside/secret", "other/theirs", "ours/../outside/secret"])
def test_nor_does_it_lead_to_another_one_elsewhere(world: World, state: DocumentState, folder: str) -> None:
    name = folder.rpartition("/")[2]
    file = f"file:{world.ours.parent}/{folder}/metadata/_sfn/sales_{name}_main.ver"
    place = planted(world, "moving", state=state, moved_to=Link(("sales",), name, file))
    world.refuses(place.path)
    world.refuses(f"{place.path}#evil.moving")


@pytest.mark.parametrize(
    "location", ["file:{outside}/secret", "file:{other}/theirs", "s3://bucket/x", "/", "{ours}/../x"]
)
def test_nor_may_the_table_lie_elsewhere(world: World, location: str) -> None:
    place = planted(world, "located")
    place.metadata(location=location.format(ours=world.ours, other=world.other, outside=world.outside))
    world.refuses(place.path)
    body = json.dumps({"format-version": 2, "location": f"file:{place.path}", "table-uuid": place.document().guid})
    twice = body[:-1] + f', "loc\\u0061tion": "file:{world.outside}"}}'
    place.metadata(body=twice.encode())
    world.refuses(place.path)


@pytest.mark.parametrize("is_relative", [True, False])
@pytest.mark.parametrize(
    "what", ["metadata/_sfn/evil_linking_main.ver", "metadata/00001-a.metadata.json", "metadata/_sfn", "metadata", ""]
)
def test_links_lead_nowhere_else(world: World, what: str, is_relative: bool) -> None:
    secret = Directory(world.outside / "linked")
    shown(secret.path, "evil.linking", metadata_file_path=f"file:{world.ours}/linking/metadata/00001-a.metadata.json")
    secret.metadata(location=f"file:{world.ours}/linking", canary="x")
    shutil.rmtree(world.ours / "linking", ignore_errors=True)
    (world.ours / "linking").unlink(missing_ok=True)
    place = planted(world, "linking")
    there, here = secret.path / what, place.path / what
    if here.is_dir():
        shutil.rmtree(here)
    else:
        here.unlink()
    depth = len(Path(what).parts) + (1 if not what else 0)
    here.symlink_to(Path(*[".."] * depth, "..", "outside", "linked", what) if is_relative and what else there)
    # By its name it is refused; a listing does not show it.
    world.refuses(world.ours / "linking", 403, 404)
    world.refuses(f"{world.ours}/linking#evil.linking")
    here.unlink()


def test_links_that_stay_inside_are_followed(world: World) -> None:
    place = planted(world, "linked/inner")
    (world.ours / "linked" / "to").symlink_to("inner")
    (world.ours / "linked" / "absolute").symlink_to(place.path)
    for name in ("to", "absolute"):
        assert world.ask(world.ours / "linked" / name).status_code == httpx.codes.OK


def test_what_is_swapped_meanwhile_leads_nowhere_else(world: World) -> None:
    place = planted(world, "swapped")
    secret = shown(
        world.outside / "swapped",
        "evil.swapped",
        metadata_file_path=f"file:{place.path}/metadata/00001-a.metadata.json",
    )
    secret.metadata(location=f"file:{place.path}", canary="x")
    kept, link = world.ours / "kept", world.ours / "link"
    link.symlink_to(secret.path)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            place.path.rename(kept)
            link.rename(place.path)
            place.path.rename(link)
            kept.rename(place.path)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        answers = [world.ask(place.path) for _ in range(150)]
    finally:
        stop.set()
        thread.join()
    assert {answer.status_code for answer in answers} <= {200, 403, 404, 500}
    assert not any("canary" in answer.text for answer in answers)


@pytest.mark.parametrize(
    "name",
    [
        "{ours}/../outside/secret",
        "{ours}/good/../../outside/secret",
        "{ours}/%2e%2e/outside/secret",
        "{ours}/..%2Foutside%2Fsecret",
        "{ours}%2F..%2Foutside/secret",
        "{ours}/./good",
        "{ours}//good",
        "{ours}\\..\\outside\\secret",
        "{ours}/good\0/../../outside/secret",
        "{outside}/secret",
        "file:{outside}/secret",
        "file://localhost{outside}/secret",
        "local://{outside}/secret",
        "simplecache::file://{outside}/secret",
        "{ours}side",
        "/",
        "/etc",
        "/proc/self/cwd",
        "http://127.0.0.1/x",
        "s3://bucket/x",
        "{ours}/" + "a/" * 8_000,
    ],
)
def test_no_name_leads_elsewhere(world: World, name: str) -> None:
    named = name.format(ours=world.ours, outside=world.outside)
    world.refuses(named)
    assert world.ask(named, method="HEAD").status_code == httpx.codes.FORBIDDEN


def test_a_name_is_not_taken_from_another_table(world: World) -> None:
    place = planted(world, "thief")
    place.write("sales.theirs", metadata_file_path=f"file:{place.path}/metadata/00001-a.metadata.json")
    place.write("sales.good", metadata_file_path=f"file:{place.path}/metadata/00001-a.metadata.json")
    try:
        for name in ("theirs", "good"):
            answer = world.facade.table(name)
            # What was listed before the thief came is still known.
            assert answer.status_code == 400 or "thief" not in answer.text
    finally:
        shutil.rmtree(place.path)


@pytest.mark.parametrize("kind", ["plain", "gzip", "nested"])
def test_giant_metadata_is_refused_in_bounded_memory(world: World, kind: str) -> None:
    place = planted(world, "giant")
    file = place.path / "metadata" / "00001-a.metadata.json"
    begin = b'{"format-version":2,"x":' + (b"[" * 100_000 if kind == "nested" else b'"')
    if kind == "gzip":
        with gzip.open(file, "wb", 1) as out:
            out.write(begin)
            for _ in range(200):
                out.write(b" " * MIB)
    else:
        with file.open("wb") as out:
            out.write(begin)
            out.truncate(400 * MIB if kind == "plain" else len(begin))
    more = weigh(world, lambda: world.refuses(place.path, 500))
    print(f"{kind}: {more // MIB} MiB")
    assert more < 160 * MIB


def test_giant_sfn_files_are_refused(world: World) -> None:
    place = planted(world, "fat")
    file = place.sfn_file("evil.fat")
    with file.open("wb") as out:
        out.truncate(400 * MIB)
    assert weigh(world, lambda: world.refuses(place.path, 500)) < 16 * MIB
    for body in (b"[" * 60_000, b'{"version":' + b"9" * 60_000 + b"}", b'{"version":1,"version":2}', b"\xff\xfe{}"):
        file.write_bytes(body)
        world.refuses(place.path, 500)


@pytest.mark.parametrize(("method", "path", "status"), [write for write in WRITES if write[0].isupper()])
def test_no_write_is_taken(world: World, method: str, path: str, status: int) -> None:
    before = sorted(world.ours.rglob("*"))
    body = json.dumps({"name": "t", "location": str(world.ours / "new"), "updates": [], "requirements": []})
    for named in (path, path.replace("/p/", "/sfn/").replace("/a/", "/dir/")):
        answer = world.facade.client.request(method, world.facade.uri + named, content=body)
        assert answer.status_code == status
        assert answer.json()["error"]["code"] == status
    assert sorted(world.ours.rglob("*")) == before
