"""The domain's value types: frozen dataclasses and enums without behaviour of their own.

    identifiers  `TableIdentifier`, `CatalogName`, `Table`: names, and the metadata that decisions need
    events       `Notification` and the other messages that go into the inbox; the history of event-only catalogs
    jobs         `LeasedJob`, `TableState`, `PublishResult` and the outcomes of a job

Start reading with `events.Notification`, then `jobs.LeasedJob`.
"""
