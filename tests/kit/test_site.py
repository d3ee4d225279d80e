"""The documentation site: it is built without a warning, says what the pages say, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt
from typing_extensions import override

from tests.servers.chromium import Chromium
from tests.shape.measures import anchors
from tests.support.processes import wait_for
from tests.support.programs import IS_CI

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
BUILD: Final = ROOT / "deploy" / "site" / "build.py"
PAGES: Final = sorted(DOCS.rglob("*.md"))
SVG: Final = "{http://www.w3.org/2000/svg}"
PHONE: Final = 390
DESKTOP: Final = 1300
"""Pixels of a window's width."""

LARGEST: Final = [
    max(folder.glob("*.md"), key=lambda page: page.stat().st_size) for folder in {p.parent for p in PAGES}
]
"""Of each folder, the page with the most text."""

OF_THE_THEME: Final = ("landmark-unique", "scrollable-region-focusable")
"""Barriers of both generators' theme: blocks of code are no stops of the keyboard, and their buttons have one name."""

COUNTED: Final = re.compile("h[1-4]|ul|ol|li|table|tr|th|td|p|pre|blockquote|code|em|strong|a|img|hr|br")
"""Elements that readers see."""

Build = Callable[..., subprocess.CompletedProcess[str]]


class Elements(HTMLParser):
    """How often each element is in the text of a page; anchors and descriptions of the whole page."""

    def __init__(self, text: str, *, is_page: bool) -> None:
        super().__init__()
        self.count = Counter[str]()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.title = self.description = ""
        self._inside = not is_page
        self._is_title = False
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._inside |= tag == "article"
        self._is_title = tag == "title"
        if name := values.get("id") or (tag == "a" and values.get("name")):
            self.anchors.add(str(name))
        if tag == "meta" and values.get("name") == "description":
            self.description = values["content"]
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        is_added = "headerlink" in values.get("class", "") or values.get("src", "").endswith("#only-dark")
        if self._inside and COUNTED.fullmatch(tag) and not is_added and (tag != "a" or "href" in values):
            self.count[tag] += 1

    @override
    def handle_endtag(self, tag: str) -> None:
        self._inside &= tag != "article"

    @override
    def handle_data(self, data: str) -> None:
        if self._is_title:
            self.title, self._is_title = data.strip(), False


def html(place: Path) -> Path:
    """Return the file of the site for a page in docs."""
    page = place.relative_to(DOCS)
    return page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html")


@pytest.fixture(name="build", scope="module")
def fixture_build() -> Build:
    """Return a function that builds the site of a repository, this one without `root`."""
    python = ROOT / "build" / "docs-venv" / "bin" / "python"
    if not python.exists():
        missing = f"no {python}; run `make docs`"
        pytest.fail(missing) if IS_CI else pytest.skip(missing)

    def build(output: Path, root: Path = ROOT, *more: str) -> subprocess.CompletedProcess[str]:
        command = [str(python), str(BUILD), f"--output={output}", f"--root={root}", *more]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    return build


@pytest.fixture(name="site", scope="module")
def fixture_site(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site."""
    folder = tmp_path_factory.mktemp("site") / "site"
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(name="address", scope="module")
def fixture_address(site: Path) -> Iterator[str]:
    """Return the address of a server of the site's files."""
    with serving(site) as address:
        yield address


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the files of a folder."""

    class Quiet(SimpleHTTPRequestHandler):
        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# ── What is built


@pytest.mark.slow
def test_every_page_is_in_the_navigation(site: Path) -> None:
    links = Elements((site / "index.html").read_text(), is_page=True).links
    listed = {link.partition("#")[0] for link in links}
    assert {html(page).as_posix() for page in PAGES} - listed == set()
    assert "project/changelog.html" in listed


@pytest.mark.slow
def test_pages_have_the_elements_that_commonmark_says(site: Path) -> None:
    """GitHub reads lists, tables and code by other rules than the site: a page must not depend on them."""
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    for page in PAGES:
        expected = Elements(reader.render(page.read_text()), is_page=False).count
        built = Elements((site / html(page)).read_text(), is_page=True).count
        if "<picture>" in page.read_text():  # the site shows such a picture in a paragraph
            expected["p"] = built["p"]
        assert (page.name, built) == (page.name, expected)


@pytest.mark.slow
def test_anchors_are_those_of_github(site: Path) -> None:
    for page in PAGES:
        missing = anchors(page) - Elements((site / html(page)).read_text(), is_page=True).anchors
        assert (page.name, missing) == (page.name, set())


@pytest.mark.slow
def test_pages_have_titles_and_descriptions_of_their_own(site: Path) -> None:
    read = {page: Elements((site / html(page)).read_text(), is_page=True) for page in PAGES}
    titles = Counter(one.title for one in read.values())
    assert [title for title, times in titles.items() if times > 1] == []
    assert [page.name for page, one in read.items() if not 20 <= len(one.description) <= 165] == []


@pytest.mark.slow
def test_linked_files_of_the_repository_are_pages(site: Path) -> None:
    text = (site / "files" / "deploy-sfn.example.toml.html").read_text()
    assert "[catalogs.prod]" in re.sub(r"<[^>]+>", "", text)


@pytest.mark.slow
def test_programs_get_the_site_as_text(site: Path) -> None:
    listed = re.findall(r"\]\(([^)]+)\): \w", (site / "llms.txt").read_text())
    assert {html(page).as_posix() for page in PAGES} - {"index.html"} - set(listed) == set()
    assert [name for name in listed if not (site / name).is_file()] == []
    whole = (site / "llms-full.txt").read_text()
    assert len(whole) > 300_000
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    links = {link.partition("#")[0] for link in Elements(reader.render(whole), is_page=False).links if ":" not in link}
    assert len(links) > len(PAGES)
    assert sorted(link for link in links if not (link.endswith(".html") and (site / link).is_file())) == []


# ── What is refused

INDEX: Final = "# Documentation\n\nAll pages of it.\n\n## All\n\n- [One](one.md)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("index", "page", "fault"),
    [
        (INDEX, "See [this](two.md).", "docs/one.md: expected a file, found the link two.md"),
        (INDEX, "See [this](../picture.bin).", "picture.bin: expected a text, because a page links to it"),
        (INDEX, "See [this](../secret.txt).", "docs/one.md: expected a file, found the link ../secret.txt"),
        (INDEX, "See [this](index.md#none).", "zensical refused a page"),
        (INDEX, "See <a href='index.html#none'>this</a>.", "one.html: the link index.html#none leads to no heading"),
        (INDEX, "![a badge](https://badges.example/x.svg)", "one.html: expected no file of another server"),
        (INDEX, "# Two", "one.html: expected one heading of the first level, found 2"),
        ("# Documentation\n\nNo list.\n", "Text.", "expected a link to each page, found none to one.md"),
    ],
)
def test_a_faulty_page_is_refused(build: Build, tmp_path: Path, index: str, page: str, fault: str) -> None:
    done = build(tmp_path / "site", repository(tmp_path, index, page))
    assert done.returncode == 1, done.stdout
    assert fault in done.stderr
    assert not (tmp_path / "site").exists()


def repository(folder: Path, index: str, page: str) -> Path:
    """Make a repository of two pages."""
    docs = folder / "repository" / "docs"
    docs.mkdir(parents=True)
    (docs / "index.md").write_text(index)
    (docs / "one.md").write_text(f"# One\n\n{page}\n")
    (docs.parent / "picture.bin").write_bytes(b"\xff\xfe")
    return docs.parent


@pytest.mark.slow
def test_a_site_with_an_address_can_be_shown_there(build: Build, tmp_path: Path) -> None:
    page = "See [the license](../LICENSE), [the folder](../settings), [below](#a--b-c).\n\n## A & B: `c`"
    root, site = repository(tmp_path, INDEX, page), tmp_path / "site"
    (root / "LICENSE").write_text("Everything is allowed.\n")
    (root / "settings").mkdir()
    (root / "settings" / "first.toml").write_text("[first]\n")
    done = build(site, root, "--address=https://docs.example/sfn/")
    assert done.returncode == 0, done.stderr
    assert "https://docs.example/sfn/one.html" in (site / "sitemap.xml").read_text()
    assert "/sfn/index.html" in Elements((site / "404.html").read_text(), is_page=True).links
    assert "Everything is allowed." in (site / "files" / "LICENSE.html").read_text()
    links = Elements((site / "files" / "settings.html").read_text(), is_page=True).links
    assert "settings-first.toml.html" in links


# ── What a browser shows


@pytest.mark.slow
def test_a_browser_loads_nothing_from_another_server(address: str, chromium: Chromium) -> None:
    """Each file was searched for addresses as the site was built; here scripts run as well."""
    chromium.forget()
    chromium.requested()
    for page in (*LARGEST, DOCS / "operate" / "page.md"):
        chromium.open(f"{address}/{html(page)}")
    find(chromium, address, "drop limit")
    requests = chromium.requested()
    assert f"{address}/search.json" in requests
    assert [url for url in requests if not url.startswith(f"{address}/")] == []
    assert chromium.complaints() == []


@pytest.mark.slow
def test_pages_fit_on_a_phone(address: str, chromium: Chromium) -> None:
    chromium.resize(PHONE)
    try:
        for page in LARGEST:
            chromium.open(f"{address}/{html(page)}")
            width = chromium.evaluate("document.documentElement.scrollWidth")
            assert (page.name, width) == (page.name, PHONE)
    finally:
        chromium.resize(DESKTOP)


@pytest.mark.slow
@pytest.mark.parametrize("is_served", [True, False])
def test_search_finds_the_drop_limit(site: Path, address: str, chromium: Chromium, is_served: bool) -> None:
    """It works with a server, and from a folder."""
    assert "The drop limit and dead letters" in find(chromium, address if is_served else site.as_uri(), "drop limit")


def find(chromium: Chromium, address: str, words: str) -> str:
    """Search as a reader does, and return what is found."""
    chromium.open(f"{address}/index.html")
    wait_for(lambda: chromium.evaluate("!!document.querySelector('.md-search__button')"), "a field to search", 20, 0.1)
    chromium.find(".md-search__button").click()
    # The dialog is in a shadow tree, which selectors of the page do not reach.
    tree = "[...document.querySelectorAll('body > div')].map(one => one.shadowRoot).find(one => one)"
    wait_for(lambda: chromium.evaluate(f"!!({tree})?.querySelector('dialog[open] input')"), "the dialog", 20, 0.1)
    field = f"{tree}.querySelector('input')"
    chromium.evaluate(f"({field}.value = {words!r}, {field}.dispatchEvent(new Event('input', {{bubbles: true}})))")
    results = f"{tree}.querySelector('[role=listbox]').innerText"
    wait_for(lambda: bool(chromium.evaluate(results)), "a result of the search", 20, 0.1)
    return str(chromium.evaluate(results))


@pytest.mark.slow
def test_pages_have_no_barriers(address: str, chromium: Chromium) -> None:
    try:
        for scheme in ("light", "dark"):
            chromium.show(scheme)
            for page in ("index", "operate/page", "catalogs/send-events", "concepts/how-it-works", "404"):
                chromium.open(f"{address}/{page}.html")
                barriers = [one for one in chromium.barriers() if not one.startswith(OF_THE_THEME)]
                assert (scheme, page, barriers) == (scheme, page, [])
    finally:
        chromium.show("light")


@pytest.mark.slow
def test_pictures_follow_the_scheme(address: str, chromium: Chromium) -> None:
    shown = "[...document.images].filter(one => one.offsetWidth > 300).map(one => one.src.replace(/.*images./, ''))"
    for scheme in ("light", "dark"):
        chromium.show(scheme)
        chromium.open(f"{address}/operate/page.html")
        pictures = chromium.evaluate(shown)
        assert len(pictures) > 5
        assert [name for name in pictures if f"-{scheme}.png" not in name] == []
    chromium.show("light")


@pytest.mark.parametrize("picture", sorted((DOCS / "images").glob("*.svg")), ids=lambda path: path.name)
def test_drawings_can_be_read_by_all(picture: Path) -> None:
    """A drawing says in words what it shows, has its text as text, and loads nothing."""
    drawing = ET.parse(picture).getroot()  # noqa: S314 - it is ours
    texts = [element.text or "" for element in drawing.iter(f"{SVG}text")]
    assert len(texts) > 5
    named = {element.get("id"): " ".join((element.text or "").split()) for element in drawing}
    assert [len(named[name]) > 20 for name in drawing.get("aria-labelledby", "none").split()] == [True, True]
    assert {element.tag for element in drawing.iter()} & {f"{SVG}script", f"{SVG}image", f"{SVG}foreignObject"} == set()
    assert "href" not in picture.read_text()


def test_the_tool_of_the_site_is_pinned() -> None:
    """The lock has hashes, and names no index."""
    lock = (ROOT / "deploy" / "docs.lock").read_text()
    (wanted,) = re.findall(r"^zensical==.*$", (ROOT / "deploy" / "site" / "requirements.txt").read_text(), re.MULTILINE)
    assert f"{wanted} \\\n    --hash=sha256:" in lock
    assert "://" not in lock
