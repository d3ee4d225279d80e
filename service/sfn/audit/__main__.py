"""`sfn audit run` as a file for `spark-submit`; also `python -m sfn.audit`."""

from __future__ import annotations

import typer

from sfn.cli.audit import RUN_EXAMPLES, run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
app.command(epilog=RUN_EXAMPLES)(run)

if __name__ == "__main__":
    app(prog_name="python -m sfn.audit")
