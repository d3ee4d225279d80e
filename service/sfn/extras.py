"""The command that installs an extra of this distribution, the way the distribution itself was installed."""

from __future__ import annotations

import json
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

DISTRIBUTION: Final = "iceberg-sfn"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this environment, to be shown as a remedy."""
    return f"{_installer(Path(sys.prefix))} '{requirement(extra)}'"


def requirement(extra: str, installed: Distribution | None = None) -> str:
    """Return the requirement of an extra.

    It names the same file or folder that was installed, as long as that exists. An index is named only if the
    distribution came from one: otherwise the name there may be another project's.

    Args:
        extra: its name.
        installed: the installed distribution; None for the running one.
    """
    try:
        origin = (installed or distribution(DISTRIBUTION)).read_text("direct_url.json")
    except PackageNotFoundError:  # it runs from a folder of sources
        origin = None
    url = str(json.loads(origin)["url"]) if origin else ""
    is_gone = url.startswith("file://") and not Path(url2pathname(urlsplit(url).path)).exists()
    return f"{DISTRIBUTION}[{extra}]" + (f" @ {url}" if url and not is_gone else "")


def _installer(prefix: Path) -> str:
    if (prefix / "uv-receipt.toml").is_file():
        return "uv tool install --force"
    if (prefix / "pipx_metadata.json").is_file():
        return "pipx install --force"
    return "pip install"
