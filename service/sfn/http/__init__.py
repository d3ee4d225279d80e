"""The HTTP server of the listener, and the endpoint that accepts events.

Start with `ingest`: `EventsEndpoint` identifies the sender and reads the body. `IngestService` decodes the events
(`sfn.formats`), and waits for `InboxWriter.put` before the answer 202. `app` builds the ASGI application from this
endpoint and the other routes, and `server` runs it on uvicorn. Plain events take the `server.FastPath`, which calls the
endpoint without ASGI's scope and messages.

- `senders`, `secrets`, `signature`: who may send events, by bearer token or by signature.
- `responses`: the answers to senders. `openapi`: the OpenAPI description of the event routes, with schemas of the types
  that decode events (`sfn.formats`).
"""
