"""Programs that tests need: the runtime of a real catalog, servers that `make servers` fetched, and the system's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from sfn.demo.environment import ServerRuntime, find_runtime
from sfn.errors import SfnError

SURROUNDINGS = os.environ  # noqa: TID251 - the test run's own
CACHES = Path(SURROUNDINGS.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "iceberg-sfn"
CACHE = CACHES / "test-servers-2026.11"
TOOLS = CACHES / "tools-2026.11"
TOLD = {name: Path(SURROUNDINGS[name]) for name in ("SFN_JAVA", "SFN_JARS", "XDG_CACHE_HOME") if SURROUNDINGS.get(name)}
IS_CI = SURROUNDINGS.get("CI") == "true"


def runtime() -> ServerRuntime:
    """What `make jars` fetched; without it the test is skipped, but fails on a build server."""
    try:
        return find_runtime(java=TOLD.get("SFN_JAVA"), jars=TOLD.get("SFN_JARS"), cache=TOLD.get("XDG_CACHE_HOME"))
    except SfnError as error:
        if IS_CI:
            raise
        pytest.skip(f"no real REST catalog: {error}")


def installed(program: str) -> str | None:
    """Where a program of the system's is; of servers Debian's lie where not everybody's `FACADE_PATH` leads."""
    return shutil.which(program, path=f"{SURROUNDINGS.get('PATH', os.defpath)}:/usr/sbin")


def found(name: str, *, cache: Path = CACHE, ci: bool = IS_CI, target: str = "servers") -> Path:
    """Where a server is; without it the test is skipped, but fails on a build server.

    Args:
        name: of an environment variable, which counts before what was fetched.
        target: of make, which fetches it.
    """
    env = cache / "env"
    lines = env.read_text().splitlines() if env.is_file() else []
    fetched = dict(line.split("=", 1) for line in lines)
    path = SURROUNDINGS.get(name) or fetched.get(name)
    if path and Path(path).exists():
        return Path(path)
    missing = f"{name}: expected a path, set or in {env}; found {path}; run `make {target}`"
    if ci:
        pytest.fail(missing)
    pytest.skip(missing)


def tool(name: str) -> Path:
    """Where a program or a folder is that tests of deployment files use; without it as of `found`.

    It is named by a variable such as `SFN_KUBECTL_VALIDATE`, else fetched by `make tools`, else one of the system.
    """
    variable = f"SFN_{name.upper().replace('-', '_')}"
    env = TOOLS / "env"
    is_fetched = env.is_file() and f"{variable}=" in env.read_text()
    own = None if is_fetched or SURROUNDINGS.get(variable) else installed(name)
    return Path(own) if own else found(variable, cache=TOOLS, target="tools")
