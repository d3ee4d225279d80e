"""`python -m tests.fuzz [--seconds N] [--runs N] [--folder FOLDER] [TARGET …]`: fuzz all targets or these.

It ends with 1 if one breaks. What breaks a target lies in `build/fuzz/TARGET`, and what reached new lines too: the next
run begins with it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.fuzzer import FOUND, PLANTED, ROOT, TARGETS


def main() -> int:
    """Fuzz one target after the other, each in a process of its own: the fuzzer ends that."""
    arguments = argparse.ArgumentParser(prog="python -m tests.fuzz")
    arguments.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all of them without")
    arguments.add_argument("--seconds", type=int, default=60, help="for each target")
    arguments.add_argument("--runs", type=int, default=-1, help="most inputs of each; -1 for all in that time")
    arguments.add_argument("--folder", type=Path, default=FOUND, help="for what is found")
    chosen = arguments.parse_args()
    if unknown := set(chosen.targets) - set(TARGETS) - set(PLANTED):
        arguments.error(f"no target {', '.join(sorted(unknown))}; known are {', '.join(TARGETS)}")
    if find_spec("atheris") is None:
        print(
            "tests.fuzz: expected the package atheris, found none; it is in the extra dev, for Linux", file=sys.stderr
        )
        return 1
    broken = [name for name in chosen.targets or TARGETS if not _holds(name, chosen)]
    for name in broken:
        print(f"{name}: something was found, see above and {chosen.folder / name}", file=sys.stderr)
    return int(bool(broken))


def _holds(name: str, chosen: argparse.Namespace) -> bool:
    print(f"{name}: {chosen.seconds} s", file=sys.stderr)
    limits = [str(chosen.seconds), str(chosen.runs)]
    command = [sys.executable, "-m", "tests.fuzz.fuzzer", name, *limits, str((chosen.folder / name).absolute())]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
