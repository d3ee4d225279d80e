"""The gateway: a transparent reverse proxy in front of an Iceberg REST catalog, which records each commit that passes.

Start with `proxy`: `Proxy` answers the requests of one gateway. `routes` recognises the requests that change tables.
For such a request, `commits.CommitRecorder` records an intent in the inbox before it is forwarded, and its outcome
after.

- `streams`: request bodies on their way to the catalog, and what is observed of responses.
- `upstream`: requests to the catalog over a pool of connections, and rewritten configurations.
- `connection`: one HTTP/1.1 connection to the catalog, and header fields.
"""
