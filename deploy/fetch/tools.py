"""Fetch the tools that check the files for Kubernetes, Prometheus, Compose and continuous integration.

Prints a line for each, `SFN_HELM=<executable>`, and writes the lines to `env` in the cache folder. A tool that could
not be fetched is named on standard error; the exit status is 1 then.
"""

import fcntl
import os
import sys
from functools import partial
from pathlib import Path

from fetching import Failed, forget_parts, tell
from go_programs import built, built_as_tool

# The month in which the versions below were chosen; tests/support/programs.py searches there.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "iceberg-sfn" / "tools-2026.11"

PROMETHEUS = "github.com/prometheus/prometheus"
TOOLS = {
    "SFN_HELM": partial(built, CACHE, "helm-4.3.1", "helm.sh/helm/v4/cmd/helm@v4.3.1"),
    "SFN_KUBECTL_VALIDATE": partial(built, CACHE, "kubectl-validate-0.0.4", "sigs.k8s.io/kubectl-validate@v0.0.4"),
    "SFN_PROMTOOL": partial(
        built_as_tool, CACHE, "promtool-0.315.0", f"{PROMETHEUS}@v0.315.0", f"{PROMETHEUS}/cmd/promtool"
    ),
    "SFN_ACTIONLINT": partial(built, CACHE, "actionlint-1.7.12", "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"),
}


def main() -> int:
    CACHE.mkdir(parents=True, exist_ok=True)
    found: dict[str, Path] = {}
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held until the process ends
        forget_parts(CACHE)
        for name, fetch in TOOLS.items():
            try:
                (found[name],) = [one for one in fetch().iterdir() if os.access(one, os.X_OK)]
            except Failed as error:
                tell(str(error))
        lines = "".join(f"{name}={path}\n" for name, path in found.items())
        (CACHE / "env.new").write_text(lines)
        (CACHE / "env.new").replace(CACHE / "env")
        forget_parts(CACHE)
    print(lines, end="")
    return int(len(found) < len(TOOLS))


if __name__ == "__main__":
    sys.exit(main())
