"""The gateway: a transparent reverse proxy in front of an Iceberg REST catalog, which records each commit that passes.

Start with `proxy`: `Proxy` answers the requests of one gateway. `routes` recognises the requests that change tables.
Before the gateway forwards such a request, `commits.CommitRecorder` stores an *intent* in the inbox: a note that a
commit is under way. After the catalog's answer it stores the outcome.

- `streams`: forwards request bodies, and reads along in response bodies.
- `upstream`: requests to the catalog over a pool of connections, and rewritten configurations.
- `connection`: one HTTP/1.1 connection to the catalog, and header fields.
"""
