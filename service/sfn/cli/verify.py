"""`sfn verify`: whether what lies in a table's directory is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sfn.cli import directory as given
from sfn.cli import options
from sfn.cli.exits import FAILED, reported

if TYPE_CHECKING:
    from pathlib import Path

    from sfn.cli.currency import Owners
    from sfn.cli.pages import Line
    from sfn.reader.verify import Finding


def verify(
    directory: given.Directory,
    table: given.Table = None,
    uuid: given.Uuid = None,
    ref: given.Ref = "main",
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Look at every manifest, data and delete file too; needs PyIceberg.")
    ] = False,
    relative: given.Relative = False,
    allow: given.Allowed = None,
    storage_options: given.StorageOptions = None,
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
    from sfn.cli.printing import progress, show, show_json
    from sfn.reader import verify as looking

    asked = given.Given(directory, table, uuid, ref, None, relative, allow, storage_options)
    owners = None if config is None and catalog is None else _owners(config, catalog)
    with given.refusals(), progress("manifests", None) as moved:
        found, findings = looking.verify(asked.resolved, deep=deep, moved=moved)
    if found is not None and owners is not None:
        from sfn.cli.currency import currency

        findings.append(currency(found, owners))
    is_right = all(one.ok for one in findings)
    if as_json:
        show_json({"ok": is_right, "findings": findings})
    else:
        show([line for one in findings for line in _lines(one)])
    if not is_right:
        raise typer.Exit(FAILED)


def _owners(config: Path | None, catalog: str | None) -> Owners:
    """Read before anything is looked at: what was found after an hour shall not be lost to a wrong setting."""
    from sfn.cli.currency import owners

    with reported():
        return owners(config, catalog)


def _lines(one: Finding) -> list[Line]:
    from sfn.cli.pages import Line, Tone, safe

    word, tone = ("ok", Tone.PLAIN) if one.ok else ("wrong", Tone.BAD)
    return [Line(f"{word:<7}{one.what}: {safe(one.text)}", tone)]
