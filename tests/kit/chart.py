"""The Helm chart, and the objects that it renders."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from tests.pages.helm_chart import CHART

Manifest: TypeAlias = Mapping[str, Any]

VALUE_SETS: Final = sorted(path.stem.removesuffix("-values") for path in (CHART / "ci").glob("*-values.yaml"))
RELEASE: Final = "lake"
NAMESPACE: Final = "data"
WORKLOADS: Final = ("Deployment", "StatefulSet")


@dataclass(frozen=True, slots=True)
class Rendered:
    """The objects of one release.

    Attributes:
        text: the output of Helm.
        objects: the same, parsed.
    """

    text: str
    objects: Sequence[Manifest]

    def every(self, *kinds: str) -> list[Manifest]:
        """Return all objects of some kinds."""
        return [one for one in self.objects if one["kind"] in kinds]

    def the(self, kind: str) -> Manifest:
        """Return the one object of a kind."""
        (only,) = self.every(kind)
        return only

    @property
    def workloads(self) -> list[Manifest]:
        """Deployments and StatefulSets."""
        return self.every(*WORKLOADS)

    @property
    def pods(self) -> list[Manifest]:
        """Templates of pods that run the listener."""
        return [one["spec"]["template"] for one in self.workloads]

    @property
    def services(self) -> list[Manifest]:
        """Services for clients: all but the one for metrics."""
        return [one for one in self.every("Service") if one["spec"].get("clusterIP") != "None"]

    @property
    def metrics_service(self) -> Manifest:
        """The Service for metrics."""
        (only,) = [one for one in self.every("Service") if one["spec"].get("clusterIP") == "None"]
        return only

    @property
    def settings_text(self) -> str:
        """The file `sfn.toml`; empty if it is in a Secret of the user."""
        texts = [one["data"]["sfn.toml"] for one in self.every("ConfigMap") if "sfn.toml" in one["data"]]
        return "".join(texts)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The tables of `sfn.toml`."""
        return tomllib.loads(self.settings_text)


def container(pod: Manifest) -> Manifest:
    """Return the container of the listener in a template of pods."""
    (only,) = pod["spec"]["containers"]
    found: Manifest = only
    return found


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether a selector selects something with these labels."""
    return selector.items() <= labels.items()


def paths_of_files(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of all keys `…_file` in some settings."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from paths_of_files(value)
        elif key.endswith("_file"):
            yield value


@dataclass(frozen=True, slots=True)
class Chart:
    """The chart, and a Helm that renders it.

    Attributes:
        helm: the program.
        folder: with the chart, or with a copy of it.
    """

    helm: Path
    folder: Path = CHART
    _rendered: dict[str, Rendered] = field(default_factory=dict)

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run Helm."""
        return subprocess.run([self.helm, *arguments], capture_output=True, text=True, check=False, timeout=60)

    def lint(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run `helm lint --strict`."""
        return self.run("lint", "--strict", self.folder, *arguments)

    def template(
        self, name: str, values: Mapping[str, Any], release: str = RELEASE
    ) -> subprocess.CompletedProcess[str]:
        """Run `helm template`.

        Args:
            name: of a value set; empty for the values of the chart alone.
            values: more values, by path, such as `image.tag`. None removes a value.
            release: name of the release.
        """
        files: list[str | Path] = ["--values", CHART / "ci" / f"{name}-values.yaml"] if name else []
        more = [part for path, value in values.items() for part in ("--set-json", f"{path}={json.dumps(value)}")]
        return self.run("template", release, self.folder, "--namespace", NAMESPACE, *files, *more)

    def render(self, name: str, values: Mapping[str, Any] | None = None, release: str = RELEASE) -> Rendered:
        """Return what `template` renders, which must succeed."""
        key = json.dumps([name, values, release])
        if key not in self._rendered:
            done = self.template(name, values or {}, release)
            assert done.returncode == 0, done.stderr
            objects = [one for one in yaml.safe_load_all(done.stdout) if one]
            self._rendered[key] = Rendered(done.stdout, objects)
        return self._rendered[key]

    def refusal(self, name: str, values: Mapping[str, Any]) -> str:
        """Return the message of `template`, which must fail."""
        done = self.template(name, values)
        assert done.returncode != 0, "these values are accepted"
        return done.stderr
