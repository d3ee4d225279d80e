"""A real Prometheus that scrapes a service and evaluates the rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml
from typing_extensions import override

from tests.servers.process import Server

RULES = Path(__file__).parents[2] / "deploy" / "prometheus"


class Prometheus(Server):
    """The server.

    Args:
        program: the program.
        target: host and port that it scrapes, twice a second.
    """

    title = "prometheus"

    def __init__(self, program: Path, target: str) -> None:
        super().__init__()
        self._program, self._target = program, target

    @override
    def start(self) -> None:
        for name in ("recording.yml", "alerts.yml"):
            rules = yaml.safe_load((RULES / name).read_text())
            for group in rules["groups"]:
                # A group with an interval of its own would first be evaluated minutes after the start.
                group.pop("interval", None)
            (self.folder / name).write_text(yaml.safe_dump(rules))
        settings = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["recording.yml", "alerts.yml"],
            "scrape_configs": [{"job_name": "iceberg-sfn", "static_configs": [{"targets": [self._target]}]}],
        }
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        super().start()

    def values(self, expr: str) -> list[float]:
        """Return the values of an instant query, without those that are not a number."""
        found = [float(series["value"][1]) for series in self.query(expr)]
        return [value for value in found if not math.isnan(value)]

    def query(self, expr: str) -> list[Any]:
        """Return the series of an instant query.

        Raises:
            httpx.HTTPStatusError: Prometheus refuses the expression, or fails to evaluate it.
        """
        return list(self._get("query", query=expr)["result"])

    def rules(self) -> list[dict[str, Any]]:
        """Return every rule, with its state of health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - JSON
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=10.0, trust_env=False)
        assert answer.status_code == httpx.codes.OK, f"{parameters}: {answer.text}"
        found = answer.json()
        assert not found.get("warnings"), found["warnings"]
        return found["data"]

    @override
    def _command(self) -> Sequence[str | Path]:
        return [
            self._program,
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]

    @override
    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=5.0, trust_env=False).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False
