"""A folder with a settings file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sfn.settings import load
from sfn.settings.root import Settings
from sfn.settings.sources import ConfigurationError

CATALOG = '[catalogs.prod]\nuri = "https://catalog.example/api"\n'


class Ground:
    """A folder with a settings file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "sfn.toml"

    def load(self, text: str, environ: Mapping[str, str] | None = None) -> Settings:
        self.path.write_text(text)
        return load(self.path, environ or {})

    def problems(self, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
        with pytest.raises(ConfigurationError) as caught:
            self.load(text, environ)
        problems = [str(problem) for problem in caught.value.problems]
        assert all(problem in str(caught.value) for problem in problems)
        return problems

    def problem(self, text: str, environ: Mapping[str, str] | None = None) -> str:
        (problem,) = self.problems(text, environ)
        return problem
