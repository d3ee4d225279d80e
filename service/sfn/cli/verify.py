"""`sfn verify`: whether what lies in a table's directory is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sfn.cli import directory as given
from sfn.cli import options
from sfn.cli.exits import FAILED, exit_on_error

if TYPE_CHECKING:
    from pathlib import Path

    from sfn.cli.currency import OwnerCatalogs
    from sfn.cli.pages import Line
    from sfn.reader.verify import VerifyFinding


def verify(
    directory: given.DirectoryArgument,
    table: given.TableNameOption = None,
    uuid: given.UuidOption = None,
    ref: given.RefOption = "main",
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Look at every manifest, data and delete file too; needs PyIceberg.")
    ] = False,
    relative: given.RelativeOption = False,
    allow: given.AllowOption = None,
    storage_options: given.StorageOptionsOption = None,
    config: options.Config = None,
    catalog: options.Catalog = None,
    as_json: options.AsJson = False,
) -> None:
    """Prove that what lies in a table's directory is right.

    The SFN file is one, its uuid is the metadata's, and the files that the ref's head needs are there. With a
    configuration the catalog that owns the table is asked as well, whether the file is current.

    Ends with 1 and a list where something is wrong, and with 2, before anything is looked at, where the configuration
    is.
    """
    from sfn.cli.printing import print_json, print_page, progress
    from sfn.reader import verify as looking

    selected = given.DirectoryOptions(directory, table, uuid, ref, None, relative, allow, storage_options)
    owners = None if config is None and catalog is None else _find_owners(config, catalog)
    with given.report_unreadable(), progress("manifests", None) as on_progress:
        found, findings = looking.verify(selected.resolve, deep=deep, on_progress=on_progress)
    if found is not None and owners is not None:
        from sfn.cli.currency import check_is_current

        findings.append(check_is_current(found, owners))
    is_right = all(one.ok for one in findings)
    if as_json:
        print_json({"ok": is_right, "findings": findings})
    else:
        print_page([line for one in findings for line in _lines(one)])
    if not is_right:
        raise typer.Exit(FAILED)


def _find_owners(config: Path | None, catalog: str | None) -> OwnerCatalogs:
    """Read before anything is looked at: what was found after an hour shall not be lost to a wrong setting."""
    from sfn.cli.currency import find_owners

    with exit_on_error():
        return find_owners(config, catalog)


def _lines(one: VerifyFinding) -> list[Line]:
    from sfn.cli.pages import Line, Tone, escape

    word, tone = ("ok", Tone.PLAIN) if one.ok else ("wrong", Tone.BAD)
    return [Line(f"{word:<7}{one.what}: {escape(one.text)}", tone)]
