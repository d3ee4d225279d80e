"""The site as it was built: does each link lead somewhere, and does a page load anything from another server?"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from staging import Page, Site, outside_code

LOADED = {
    ("audio", "src"),
    ("iframe", "src"),
    ("img", "src"),
    ("link", "href"),
    ("script", "src"),
    ("source", "srcset"),
    ("video", "src"),
}
"""Elements with the attribute that names what a browser loads by itself."""
FOLLOWED = {"alternate", "canonical", "next", "prev"}
"""Relations of links in the head that a browser does not load."""


class Document(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = {""}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.titles = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.titles += tag == "h1"
        if tag == "link" and FOLLOWED.intersection((dict(attrs).get("rel") or "").split()):
            return
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif tag == "a" and name == "href":
                self.links.append(value or "")
            elif (tag, name) in LOADED:
                self.loads.append(value or "")


def faults(folder: Path, site: Site, address: str) -> list[str]:
    """Return what is wrong with a built site, one line for each fault.

    Args:
        folder: the site.
        site: what it should have.
        address: where it will be; empty if that is not known.
    """
    documents = {path: Document(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    missing = {html(place) for place in site.pages} - {path.relative_to(folder).as_posix() for path in documents}
    found = [f"{name}: expected a page, found none" for name in sorted(missing)]
    for path, document in documents.items():
        name = path.relative_to(folder).as_posix()
        found += [
            f"{name}: {fault}" for fault in _faults(Place(folder, path, urlsplit(address).path), document, documents)
        ]
    return found


class Place(NamedTuple):
    """Where a page is.

    Attributes:
        site: the folder of the site.
        page: its file.
        base: the path of the site in its address.
    """

    site: Path
    page: Path
    base: str

    def file(self, path: str) -> Path:
        """Return the file that the path of a link leads to."""
        if not path:
            return self.page
        # Only the page for wrong addresses has such links: it may be shown at any of them.
        is_absolute = path.startswith("/")
        relative = unquote(path).removeprefix(self.base).lstrip("/") if is_absolute else unquote(path)
        file = ((self.site if is_absolute else self.page.parent) / relative).resolve()
        return file / "index.html" if file.is_dir() else file


def _faults(place: Place, document: Document, documents: Mapping[Path, Document]) -> Iterator[str]:
    if document.titles != 1:
        yield f"expected one heading of the first level, found {document.titles}"
    for target in document.loads:
        if urlsplit(target).netloc:
            yield f"expected no file of another server, found {target}"
    for target in document.links + document.loads:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        file = place.file(parts.path)
        if not file.is_file():
            yield f"the link {target} leads to no file"
        elif file in documents and unquote(parts.fragment) not in documents[file].anchors:
            yield f"the link {target} leads to no heading"


_LINK = re.compile(r"\]\((?![a-z]+:)([^)\s#]*)(#[^)\s]*)?\)")
"""A link within the site, in Markdown."""


def html(place: str) -> str:
    """Return the HTML file of a page."""
    folder, _, name = place.rpartition("/")
    stem = name.removesuffix(".md")
    return f"{folder}/{'index' if stem == 'README' else stem}.html".lstrip("/")


def write_plain_text(folder: Path, site: Site) -> None:
    """Write the site for programs that read text: a list of pages, and all of their text."""
    home = site.pages["index.md"]
    lines = [f"# {home.title}", "", f"> {home.description}"]
    whole = [_with_links_of_html(home)]
    for section, links in site.navigation.items():
        lines += ["", f"## {section}", ""]
        for link in (one for above in links for one in (above, *above.below)):
            page = site.pages[link.place]
            lines.append(f"- [{link.title}]({html(link.place)}): {page.description}")
            whole.append(f"<!-- {html(link.place)} -->\n\n{_with_links_of_html(page)}")
    (folder / "llms.txt").write_text("\n".join(lines) + "\n")
    (folder / "llms-full.txt").write_text("\n\n".join(whole))


def _with_links_of_html(page: Page) -> str:
    """Return the text of a page with links to the files of the site, seen from its first folder."""

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.place), match[1])) if match[1] else page.place
        return f"]({html(target) if target.endswith('.md') else target}{match[2] or ''})"

    return outside_code(_LINK, link, page.text)
