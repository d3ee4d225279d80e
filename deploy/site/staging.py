"""The pages as a generator of sites wants them: one folder, no link that leaves it, a title and a description each.

The pages in docs are written for GitHub's view of the repository. They link to files outside of docs. Each such file
becomes a page of the site: Markdown as it is, any other file as a listing.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
INDEX = "index.md"
LONGEST = 160
"""Characters of a page's description."""

_CODE = re.compile(r"^( *)(```+|~~~+).*?^ *\2 *$|(?<!`)(`+)(?!`).+?(?<!`)\3(?!`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
_PICTURE = re.compile(
    r'^<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*'
    r'<img alt="([^"]*)" src="([^"]+)">\s*</picture>$',
    re.MULTILINE,
)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_SECTION = re.compile(r"^## (.+)$")
_ITEM = re.compile(r"^( {4})?- \[([^\]]+)\]\(([^)#\s]+)\)")
_LANGUAGES = {".conf": "nginx", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json", ".py": "python"}


class Refused(Exception):
    """The site cannot be built; the message says why."""


class Page(NamedTuple):
    """A page of the site.

    Attributes:
        place: its file below the folder of pages.
        title: its heading, as plain text.
        description: the beginning of its text.
        text: its Markdown, with links within the site.
        is_listing: it shows a file of the repository.
    """

    place: str
    title: str
    description: str
    text: str
    is_listing: bool


@dataclass(frozen=True)
class Link:
    """A link of the navigation.

    Attributes:
        title: its text.
        place: the page, below the folder of pages.
        below: links that are listed below it.
    """

    title: str
    place: str
    below: list["Link"] = field(default_factory=list)

    def entry(self) -> dict[str, object]:
        """Return the entry in the generator's navigation; a page with others below it is the first of them."""
        return {self.title: [self.place, *(one.entry() for one in self.below)] if self.below else self.place}


@dataclass(frozen=True)
class Site:
    """What the site has.

    Attributes:
        pages: by their file below the folder of pages.
        navigation: by section, its links in their order.
    """

    pages: Mapping[str, Page]
    navigation: Mapping[str, list[Link]]


def stage(root: Path, folder: Path, address: str = "") -> Site:
    """Write all pages and the configuration of the generator into a folder; what was there is deleted.

    Args:
        root: the repository.
        folder: for the configuration, with the pages in `docs`.
        address: where the site will be; empty if that is not known.
    """
    shutil.rmtree(folder, ignore_errors=True)
    pages = {page.place: page for page in _pages(root)}
    site = Site(pages, _navigation(pages))
    shutil.copytree(root / "docs", folder / "docs", ignore=shutil.ignore_patterns("*.md"))
    shutil.copytree(HERE / "assets", folder / "docs" / "assets")
    shutil.copytree(HERE / "overrides", folder / "overrides")
    for page in pages.values():
        path = folder / "docs" / page.place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_front_matter(page) + page.text)
    home = {"Home": INDEX}
    sections = [{name: [one.entry() for one in links]} for name, links in site.navigation.items()]
    # JSON is YAML.
    navigation = json.dumps([home, *sections], ensure_ascii=False, indent=2)
    where = f"site_url: {json.dumps(address)}\n" if address else ""
    (folder / "mkdocs.yml").write_text(f"{(HERE / 'mkdocs.yml').read_text()}\n{where}nav: {navigation}\n")
    return site


def _pages(root: Path) -> Iterator[Page]:
    """Yield the pages in docs, and one for each file of the repository that they link to."""
    waiting = sorted((root / "docs").rglob("*.md"))
    known = set(waiting)
    while waiting:
        source = waiting.pop(0)
        page, linked = _page(root, source)
        yield page
        waiting += sorted(linked - known)
        known |= linked


def _page(root: Path, source: Path) -> tuple[Page, set[Path]]:
    """Return a page, and the files that need pages because it links to them."""
    place, linked = _place(root, source), set[Path]()

    def link(match: re.Match[str]) -> str:
        target = (source.parent / match[1]).resolve()
        if not target.exists() or not target.is_relative_to(root):
            raise Refused(f"{source.relative_to(root)}: expected a file, found the link {match[1]}")
        if target.suffix == ".md" or not target.is_relative_to(root / "docs"):
            linked.add(target)
        relative = os.path.relpath(_place(root, target), Path(place).parent)
        return f"]({relative}{match[2] or ''})"

    text = _listing(root, source)
    is_listing = text is not None
    text = outside_code(_LINK, link, text or source.read_text())
    # GitHub picks a picture by the scheme of the system, the site by the scheme that the reader chose.
    text = _PICTURE.sub(r"![\2](\3#only-light)\n![\2](\1#only-dark)", text)
    title = _TITLE.search(text)
    if title is None:
        raise Refused(f"{source.relative_to(root)}: expected a heading of the first level, found none")
    return Page(place, _plain(title[1]), _description(text[title.end() :]), text, is_listing), linked


def _place(root: Path, source: Path) -> str:
    """Return the file of the site that stands for a file of the repository."""
    if source.is_relative_to(root / "docs"):
        return source.relative_to(root / "docs").as_posix()
    name = source.relative_to(root).as_posix()
    if source.suffix == ".md":
        return f"project/{name.removesuffix('.md').replace('/', '-').lower()}.md"
    return f"files/{name.replace('/', '-')}.md"


def _listing(root: Path, source: Path) -> str | None:
    """Return a page that shows a file, or the files of a folder; None for a page."""
    name = source.relative_to(root).as_posix()
    if source.is_dir():
        files = [path for path in sorted(source.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
        links = "".join(f"- [`{path.relative_to(source)}`]({path.relative_to(source.parent)})\n" for path in files)
        return f"# {name}\n\nThe files of this folder of the repository:\n\n{links}"
    if source.suffix == ".md":
        return None
    try:
        text = source.read_text().rstrip()
    except UnicodeDecodeError:
        raise Refused(f"{name}: expected a text, because a page links to it, found other bytes") from None
    # Nothing in the repository has a longer fence.
    fence, language = "`" * 6, _LANGUAGES.get(source.suffix, "text")
    return f"# {name}\n\nThis is a file of the repository.\n\n{fence}{language}\n{text}\n{fence}\n"


def outside_code(pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str], text: str) -> str:
    """Replace what matches, but not in code."""
    parts, end = [], 0
    for code in _CODE.finditer(text):
        parts += [pattern.sub(replace, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, pattern.sub(replace, text[end:])])


def _navigation(pages: Mapping[str, Page]) -> dict[str, list[Link]]:
    """Return the sections of the index with their links; refuse pages that no section has."""
    sections: dict[str, list[Link]] = {}
    links: list[Link] = []
    for line in pages[INDEX].text.splitlines():
        if heading := _SECTION.match(line):
            links = sections.setdefault(heading[1], [])
        elif item := _ITEM.match(line):
            (links[-1].below if item[1] and links else links).append(Link(item[2], item[3]))
    sections = {name: links for name, links in sections.items() if links}
    listed = {one.place for links in sections.values() for link in links for one in (link, *link.below)}
    if missing := {page.place for page in pages.values() if not page.is_listing} - listed - {INDEX}:
        raise Refused(f"docs/index.md: expected a link to each page, found none to {', '.join(sorted(missing))}")
    return sections


def _front_matter(page: Page) -> str:
    # The title of the first page is the site's.
    settings = ({} if page.place == INDEX else {"title": page.title}) | {"description": page.description}
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    lines += ["search:", "  exclude: true"] * page.is_listing
    return "---\n" + "\n".join(lines) + "\n---\n\n"


def _description(text: str) -> str:
    """Return the first paragraph, cut at the end of a word."""
    for block in re.split(r"\n{2,}", text.strip()):
        if block[0] not in "#|-*<`!>1":
            plain = _plain(block)
            if len(plain) <= LONGEST:
                return plain
            return plain[: plain.rindex(" ", 0, LONGEST)].rstrip(",.;:") + " …"
    return ""


def _plain(text: str) -> str:
    """Return Markdown of one paragraph without its marks."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"[`*]|<[^>]+>", "", text).split())
