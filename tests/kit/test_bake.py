"""The build of the image for all platforms, as Buildx itself reads its file."""

from __future__ import annotations

import json
import subprocess
from typing import Any, Final

from tests.support.deployment import DEPLOY, IMAGE, PROJECT, ROOT
from tests.support.programs import SURROUNDINGS, tool

FILE: Final = DEPLOY / "docker-bake.hcl"
RELEASE: Final = {
    "SFN_REGISTRY": "registry.example/owner",
    "SOURCE": "https://git.example/owner/iceberg-sfn",
    "REVISION": "0123456789abcdef",
    "SOURCE_DATE_EPOCH": "1796000000",
}
PREFIX: Final = "org.opencontainers.image."


def baked(target: str, *options: str, **variables: str) -> dict[str, Any]:
    """What Buildx would build; it needs no engine."""
    command = [str(tool("buildx")), "bake", "--file", str(FILE), "--print", *options, target]
    environ = {"PATH": SURROUNDINGS["PATH"], "HOME": SURROUNDINGS["HOME"], **variables}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["target"][target]
    return found


def test_the_file_names_the_version_of_the_project_and_both_platforms() -> None:
    text = FILE.read_text()
    version = PROJECT["project"]["version"]
    assert f'  default     = "{version}"\n' in text
    assert 'platforms = ["linux/amd64", "linux/arm64"]' in text
    assert '{ type = "sbom" }' in text


def test_a_release_is_of_all_platforms_with_an_sbom_and_provenance() -> None:
    release = baked("release", "--push", CACHE="type=gha", **RELEASE)
    assert release["platforms"] == ["linux/amd64", "linux/arm64"]
    assert release["attest"] == [{"type": "sbom"}, {"type": "provenance", "mode": "max"}]
    assert release["output"] == [{"type": "image", "push": "true", "rewrite-timestamp": "true"}]
    assert release["args"] == {"SOURCE_DATE_EPOCH": RELEASE["SOURCE_DATE_EPOCH"]}
    version = PROJECT["project"]["version"]
    tags = [version, version.rpartition(".")[0], "latest"]
    assert release["tags"] == [f"registry.example/owner/iceberg-sfn:{tag}" for tag in tags]
    assert (release["cache-from"], release["cache-to"]) == ([{"type": "gha"}], [{"type": "gha", "mode": "max"}])


def test_a_release_says_of_what_it_was_built() -> None:
    labels = baked("release", **RELEASE)["labels"]
    assert labels == {
        f"{PREFIX}version": PROJECT["project"]["version"],
        f"{PREFIX}revision": RELEASE["REVISION"],
        f"{PREFIX}created": "2026-11-30T00:53:20Z",
        f"{PREFIX}source": RELEASE["SOURCE"],
        f"{PREFIX}documentation": f"{RELEASE['SOURCE']}/tree/v{PROJECT['project']['version']}/docs",
    }
    # The labels of the Dockerfile are about what all builds have in common.
    assert labels.keys() & IMAGE.pairs("LABEL").keys() == {f"{PREFIX}version"}


def test_a_build_of_ones_own_has_no_empty_labels() -> None:
    image = baked("image")
    assert image["labels"] == {f"{PREFIX}version": PROJECT["project"]["version"]}
    assert image["tags"] == [f"iceberg-sfn:{PROJECT['project']['version']}"]
    assert "args" not in image
    assert "platforms" not in image
