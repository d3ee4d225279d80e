"""The HTTP server of the listener, and the endpoint that accepts events.

Start with `events`: `EventsEndpoint` identifies the sender, reads the body, decodes the events and puts notifications
into the inbox. `app` joins it with the other routes, and `server` runs the application on uvicorn.

- `senders`, `secrets`, `signature`: who may send events, by bearer token or by signature.
- `body`: limits for the size, the duration and the rate of requests.
- `responses`, `openapi`: what clients get, and its description.
"""
