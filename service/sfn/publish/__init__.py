"""Publish a table: ask its catalog, decide what its files must be, and write them.

`publish.publish` runs one leased job. It alternates between two parts. `decide` is pure and reads only `Observations`.
When it needs a fact that is not there yet, `publish.QueryRunner` fetches the fact from the catalog, the stores or the
inbox, and `decide` runs again from its start. The result is a `PublishPlan` (ordered writes and deletes) or an
outcome.

Start reading in `decide.py`, then `publish.py`. Main types: `Observations` and the queries (`queries.py`),
`PublishContext`, `PlanBuilder` and `PublishPlan` (`context.py`), `TableFiles` and `FileFinder` (`existing_files.py`),
`Policy` (`policy.py`).

    existing_files     which files are ours
    documents          contents of documents and hints
    commit_files       one file for each commit
    plan               the files at the table's own place, and the job's outcome
    renames_and_drops  the files at all other places
    dry_run            reports differences, writes nothing
"""
