"""Run the acceptance tests against the wheel in `dist`, in a new environment that has no source of the package.

The tests run in a copy of the source distribution without the folder `service`, so `import sfn` finds the wheel alone:
`tests/acceptance/test_installed.py` checks that. Versions are those of the lock. Set PYTHON for another interpreter.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
EXTRAS = "demo,postgres,read,s3"
TOOLS = ["cryptography", "hypothesis", "psutil", "pytest", "pytest-randomly", "pytest-xdist", "pyyaml", "trustme"]
READERS = ["chdb", "duckdb-extension-httpfs", "polars"]
"""Other readers, with which pages are tested."""

# Both are about the source tree: one builds it, the other follows links to its modules.
ABOUT_SOURCES = ("test_its_way_to_install_it", "test_links_lead_somewhere")


def main(options: list[str]) -> int:
    """Make the environment, unpack the tests, and run them."""
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="sfn-wheel-") as name:
        folder = Path(name).resolve()
        began = time.monotonic()
        python = environment(folder, wheel)
        tree = unpacked(sdist, folder)
        print(f"installed {wheel.name} into an empty environment: {time.monotonic() - began:.0f} s", flush=True)
        command = [python, "-m", "pytest", "-q", "--numprocesses=2", "--dist=loadfile", "--max-worker-restart=0"]
        chosen = ["-k", f"not ({' or '.join(ABOUT_SOURCES)})", "tests/acceptance", *options]
        environ = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        return subprocess.run([*command, *chosen], cwd=tree, env=environ, check=False).returncode


def environment(folder: Path, wheel: Path) -> Path:
    """Make an environment with the wheel, what it needs, and what tests need. Return its interpreter."""
    base = os.environ.get("PYTHON") or sys.executable
    subprocess.run([base, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pinned = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "deploy" / "requirements.lock").read_text(), re.MULTILINE)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(line.strip() for line in pinned))
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wanted = [f"iceberg-sfn[{EXTRAS}] @ {wheel.as_uri()}", *TOOLS, *READERS]
    subprocess.run([*pip, "install", "--constraint", constraints, *wanted], check=True)
    subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
    return python


def unpacked(sdist: Path, folder: Path) -> Path:
    """Unpack a source distribution without the package. Return its folder."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "sdist", filter="data")
    (tree,) = (folder / "sdist").iterdir()
    shutil.rmtree(tree / "service")
    return tree


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
