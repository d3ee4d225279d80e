"""The results of `sfn inspect` and `sfn verify` for a directory."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from typer.testing import CliRunner

from sfn.cli.main import app
from sfn.errors import SfnError


@dataclass(frozen=True, slots=True)
class Inspection:
    """A table from its SFN file to its data, by the names of its files.

    Attributes:
        metadata: the metadata file's.
        columns: names and types.
        partitioned: the fields of the partition spec.
        snapshots: how many there are.
        manifest_list: of the current snapshot; None where the table is empty.
        manifests: of that.
        data, deletes: live files.
        partitions: of the live data files, as pairs of fields and what people read.
    """

    metadata: str
    columns: tuple[str, ...]
    partitioned: tuple[str, ...]
    snapshots: int
    manifest_list: str | None
    manifests: frozenset[str]
    data: frozenset[str]
    deletes: frozenset[str]
    partitions: frozenset[tuple[tuple[str, str], ...]]

    @classmethod
    def parse(cls, printed: Mapping[str, Any]) -> Self:
        metadata = printed["metadata"]
        walked = next((one["contents"] for one in metadata["snapshots"] if one["contents"] is not None), None)
        manifests = [] if walked is None else walked["manifests"]
        files = [file for one in manifests for file in one["files"]]
        return cls(
            name(metadata["path"]),
            tuple(metadata["columns"]),
            tuple(metadata["partition_fields"]),
            len(metadata["snapshots"]),
            None if walked is None else name(walked["manifest_list"]),
            frozenset(name(one["path"]) for one in manifests),
            frozenset(name(file["path"]) for file in files if file["content"] == "data"),
            frozenset(name(file["path"]) for file in files if file["content"] != "data"),
            frozenset(tuple(file["partition"].items()) for file in files if file["content"] == "data"),
        )


def inspected(directory: str, table: str) -> Inspection:
    """Return the result of `sfn inspect --files`."""
    return Inspection.parse(json.loads(_ran("inspect", directory, "--table", table, "--files", "--json")))


def tree(directory: str, table: str) -> list[str]:
    """Return the printed lines from the metadata file on, with paths relative to the table's directory."""
    lines = _ran("inspect", directory, "--table", table, "--files").splitlines()
    first = next(at for at, line in enumerate(lines) if line.lstrip().startswith("metadata file"))
    return [re.sub(rf"file:(//)?{re.escape(directory)}/", "", line) for line in lines[first:]]


def verified(directory: str, table: str) -> None:
    """Run `sfn verify --deep`: every file that the current snapshot needs must exist.

    Raises:
        SfnError: a file is missing.
    """
    _ran("verify", directory, "--table", table, "--deep")


def name(path: str) -> str:
    """Return the name of a file."""
    return path.rsplit("/", 1)[-1]


def _ran(command: str, directory: str, *arguments: str) -> str:
    # A new process would take a second, most of it to import PyIceberg.
    result = CliRunner().invoke(app, [command, directory, *arguments])
    if result.exit_code != 0:
        raise SfnError(
            f"sfn {command} {directory}", expected="exit code 0", found=f"{result.exit_code}: {result.output}"
        )
    return result.output
