"""Event formats: decode the events of senders into notifications.

`decode.decode` turns an `EventRequest` into a `DecodedRequest`. It splits the body into events, finds the `EventFormat`
of each event in `decode.EVENT_FORMATS`, and calls its `decode`. Either all events of a request are decoded, or none.

Each format is a module with two pure functions, a recogniser and a decoder of one event. It imports neither another
format nor `decode`, only `event` and `cloudevents`. To add a format, write such a module and add a line to
`EVENT_FORMATS`.

Polaris' notifications are special: their path identifies the table, and a request has exactly one.

Start reading with `decode.decode`, then `event.Event` and `native`.
"""
