"""Iceberg SFN listener: write files beside each table that name its current metadata file, and read tables by them.

SFN is short for *snapshot's metadata file name*. `docs/glossary.md` explains the terms.

The public interface reads a table's current pointer from the files beside the table, without a catalog:

    import sfn

    sfn.resolve("/warehouse/sales/orders").metadata_location
    sfn.read("s3://lake/sales/orders", ref="audit")
    sfn.history("/warehouse/sales/orders")

Its names are imported on first use, so that `import sfn` stays fast.

The way from an event to an SFN file, with the module of each step:

    sender
      │  POST
      ▼
    http/ingest.py        EventsEndpoint identifies the sender and reads the body
    formats/decode.py     decode() turns the body into notifications
    inbox/                put() stores them durably, one job per table; only then the sender gets its answer 202
      │                   (pull/, gateway/ and sweeps put their notifications here, too)
      ▼
    worker/worker.py      Worker claims due jobs, each with a lease, and calls publish()
      ▼
    publish/publish.py    calls decide(); if decide() returns a query, runs the query and calls decide() again:
      │       ▲                catalogs/ for the current metadata file, storage/ for the existing files, inbox/
      ▼       │ PublishQuery
    publish/decide.py     compares the catalog's answer with the files; does no I/O
    publish/plan.py       called by decide(): plans the table's files, first the SFN document, then the version hint
      ▼
    storage/              publish.py writes each file by a conditional write; after a lost race it starts over
      ▼                   => SFN file and version-hint.text
    worker/worker.py      Worker stores the outcome with settle(); that ends the lease

Packages:

    domain       value types: notifications, jobs, outcomes
    sfnfile      the file format: documents, names, locations, version hints
    formats      event formats of senders
    http         receiver of events over HTTP
    pull         receiver of events from NATS
    gateway      proxy in front of a catalog, which sees the commits
    inbox        durable queue of jobs, in SQLite or PostgreSQL
    worker       claims and runs jobs, sweeps catalogs
    catalogs     clients of catalogs: Iceberg REST, PyIceberg; event-only catalogs
    publish      decides and writes the files of one table
    storage      clients of stores: S3, GCS, Azure, local files
    facade       read-only Iceberg REST catalog that answers from SFN files
    reader       the public interface above
    spark        PySpark: tables by their directories
    audit        Spark job that compares whole catalogs with their directories
    admin        HTTP API for operators
    cli          the command `sfn`
    settings     the configuration, from one TOML file and the environment
    app          builds and runs the service from the settings
    telemetry    logs and metrics
    demo         `sfn demo`: a catalog, the service and a table on one machine
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sfn.errors import (
        Ambiguous,
        CommitNotFound,
        DirectoryNotFound,
        Dropped,
        MalformedDocument,
        MalformedMetadata,
        NameTaken,
        NotFound,
        NotInstalled,
        NotPermitted,
        NotRelative,
        NotSupported,
        RefNotFound,
        SfnError,
        Stale,
        TooManyFiles,
        TooManyHops,
        UnknownFormatVersion,
        Unreachable,
        Unreadable,
        Unsafe,
        WrongTable,
    )
    from sfn.reader.api import ahistory, aread, aresolve, history, read, resolve
    from sfn.reader.history import HistoryEntry
    from sfn.reader.resolve import Resolved

__all__ = [
    "Ambiguous",
    "CommitNotFound",
    "DirectoryNotFound",
    "Dropped",
    "HistoryEntry",
    "MalformedDocument",
    "MalformedMetadata",
    "NameTaken",
    "NotFound",
    "NotInstalled",
    "NotPermitted",
    "NotRelative",
    "NotSupported",
    "RefNotFound",
    "Resolved",
    "SfnError",
    "Stale",
    "TooManyFiles",
    "TooManyHops",
    "UnknownFormatVersion",
    "Unreachable",
    "Unreadable",
    "Unsafe",
    "WrongTable",
    "ahistory",
    "aread",
    "aresolve",
    "history",
    "read",
    "resolve",
]

_MODULES: Final = {
    "HistoryEntry": "sfn.reader.history",
    "Resolved": "sfn.reader.resolve",
    **dict.fromkeys(("ahistory", "aread", "aresolve", "history", "read", "resolve"), "sfn.reader.api"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_MODULES.get(name, "sfn.errors")), name)
    # Cache the name, so that the next access does not come here.
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
