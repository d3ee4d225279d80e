"""The package that the acceptance tests test: the source tree, or a wheel in an environment without the source tree."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import sfn

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "service"
PACKAGES = Path(sysconfig.get_path("purelib"))


def test_the_package_is_the_installed_one_where_no_source_is() -> None:
    command = [sys.executable, "-c", "import sfn; print(sfn.__file__)"]
    child = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(sys.prefix)).stdout.strip()
    for file in (sfn.__file__, child):
        assert SOURCE.is_dir() or Path(file).is_relative_to(PACKAGES)
