"""Build the documentation site: stage the pages, run the generator, check what it made.

    python deploy/site/build.py [--generator mkdocs] [--output build/site] [--address https://docs.example.org/sfn/]

The Python that runs this has the generator: Zensical, or Material for MkDocs.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import output
import staging

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "zensical": ("build", "--strict", "--clean", "--config-file"),
    "mkdocs": ("build", "--strict", "--clean", "--quiet", "--config-file"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation site, and check it.")
    parser.add_argument("--generator", choices=COMMANDS, default="zensical", help="what makes HTML of the pages")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site", help="the folder of the site")
    parser.add_argument(
        "--address", default="", help="where the site will be, for the 404 page and the map of the site"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    chosen = parser.parse_args()
    stage = chosen.output.absolute().with_name(f"{chosen.output.name}-stage")
    try:
        site = staging.stage(chosen.root.resolve(), stage, chosen.address)
        command = [sys.executable, "-m", chosen.generator, *COMMANDS[chosen.generator], "mkdocs.yml"]
        if subprocess.run(command, cwd=stage, check=False).returncode:
            print(f"build.py: {chosen.generator} refused a page; the pages as it read them: {stage}", file=sys.stderr)
            return 1
        faults = output.faults(stage / "site", site, chosen.address)
    except staging.Refused as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    for fault in faults:
        print(f"build.py: {fault}", file=sys.stderr)
    if faults:
        return 1
    output.write_plain_text(stage / "site", site)
    shutil.rmtree(chosen.output, ignore_errors=True)
    (stage / "site").rename(chosen.output)
    shutil.rmtree(stage)
    print(f"{len(site.pages)} pages in {chosen.output}: open {chosen.output}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
