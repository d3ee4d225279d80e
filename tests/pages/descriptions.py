"""What each setting means, for `docs/reference/settings.md`: in place of a `description` of the model's field."""

from __future__ import annotations

from typing import Final

SECTIONS: Final = {
    "listener": "The HTTP address at which the listener accepts requests.",
    "inbox": "Where events and jobs are stored.",
    "worker": "How many tables are published at a time.",
    "retry": "How often a failed table is tried again.",
    "sweep": "How often the listener compares each catalog with the published files.",
    "senders": (
        "Who may send events: one section for each sender. `NAME` is yours. Without a sender everyone may send "
        "events, and the listener accepts connections on a loopback address only."
    ),
    "pull": "Where the listener fetches events itself: one section for each source.",
    "catalogs": (
        "The catalogs: one section for each. `NAME` is yours; logs, metrics and URLs show it. Names have letters, "
        "digits, `_`, `.` and `-`, and at most 64 characters. See [catalogs](../catalogs/README.md)."
    ),
    "stores": (
        "The places where tables lie: one section for each. The listener publishes no table that lies below none "
        "of them, unless its catalog vends credentials. Without keys the listener finds credentials as the tools "
        "of the store's provider do. See [stores](../stores/README.md)."
    ),
    "gateway": "The gateways: one section for each catalog address that clients reach through the listener.",
    "facade": (
        "The read-only catalog at `/iceberg`. Without a token it does not exist, unless `open` is `true`. See "
        "[the facade](../read/facade.md)."
    ),
    "admin": "Who operates the listener. Without a token there are no admin routes.",
    "telemetry": "Log, metrics and traces.",
}

DESCRIPTIONS: Final = {
    # ---- listener
    "listener.host": (
        "The address to bind. `0.0.0.0` is all addresses: a container needs it. Any address but loopback requires "
        "a sender."
    ),
    "listener.port": "The port. 0 takes any free port; the log says which.",
    "listener.body_limit": "The longest request body.",
    "listener.body_memory": (
        "The most memory for bodies of clients that have not identified themselves yet: clients that sign, "
        "clients that need no token, and callers of admin routes. All gateways together have as much again, and "
        "64 KiB for each of their connections. The limit is never less than one of the largest bodies needs."
    ),
    "listener.drain": (
        "How long a shutdown waits for running work. Let an orchestrator wait 40 s longer before it kills the process."
    ),
    "listener.queue_limit": (
        "How many notifications may wait for the disk. Beyond that, the listener answers events with 503. Each "
        "takes at most 4 KiB of memory: 100 MiB for 25,000."
    ),
    "listener.tls_certificate_file": (
        "The certificate chain (PEM), the listener's own certificate first. Set `tls_key_file` too. Without both "
        "the listener speaks plain HTTP. The listener reads the file again when it changes."
    ),
    "listener.tls_key_file": (
        "The private key (PEM, not encrypted) of that certificate. The listener reads the file again when it changes."
    ),
    # ---- inbox
    "inbox.url": (
        "`sqlite:///` and the path of a file, relative to the working directory. A fourth slash makes the path "
        "absolute: `sqlite:////var/lib/sfn/inbox.db`. The file must be on a local disk, and one process uses it. "
        "For several processes name a PostgreSQL database: "
        "`postgresql://sfn@db.example:5432/sfn?sslmode=verify-full&sslrootcert=system`."
    ),
    "inbox.password_file": "A file with the password of the PostgreSQL database. It is read for each new connection.",
    "inbox.event_retention": "How long events and their ids are stored. A repeated id is a duplicate for that long.",
    # ---- worker
    "worker.concurrency": "How many tables each process publishes at a time.",
    "worker.lease": (
        "How long a worker may be silent before another worker takes its job, at least `1s`. The clocks of "
        "several processes must agree to a fraction of it."
    ),
    # ---- retry
    "retry.base": "The first delay after a failure. Each further delay is twice as long.",
    "retry.cap": "The longest delay.",
    "retry.budget": "A table that fails for so long becomes a dead letter `exhausted`.",
    "retry.max_attempts": "A table that fails so often becomes a dead letter `exhausted`.",
    # ---- sweep
    "sweep.every": (
        'The time between two sweeps of a catalog, at least `1s`; or `"off"`. Without sweeps, a rename that no '
        "event reported counts as a drop until an event reports the new name."
    ),
    # ---- senders
    "senders.NAME.catalog": (
        "The one catalog that events of this sender belong to. Needed if several catalogs are configured."
    ),
    "senders.NAME.catalogs": (
        "Several catalogs: the sender's name of each, and yours. The page of each "
        "[catalog](../catalogs/README.md) says what its events call it."
    ),
    "senders.NAME.dialect": (
        "The only [event format](event-formats.md) to accept from this sender. Without it the listener recognises "
        "the format. Other formats are rejected with 415."
    ),
    "senders.NAME.scheme": (
        "How the sender identifies itself. `bearer`: a token. `standard-webhooks` and `hmac-sha256`: a signature "
        "of each request's body. `none`: not at all; one such sender may exist, on a loopback address only, and "
        'not for a catalog of the type `"events"`.'
    ),
    "senders.NAME.secrets": (
        "Tokens or signing secrets, by names of your own. Several are valid at once, for rotation. A signing "
        "secret has at least 16 characters; for `standard-webhooks` it is `whsec_` and the base64 of 24 to 64 "
        "random bytes. A secret that is configured for two senders is rejected for both."
    ),
    "senders.NAME.secrets_file": (
        "A file with more of them, one a line. The listener reads the file again when it changes."
    ),
    "senders.NAME.signature_header": (
        "With `hmac-sha256`: the header that holds the signature. Polaris' webhook uses `X-Polaris-Signature-256`."
    ),
    "senders.NAME.rate_limit": (
        "The most requests a minute, for each process; a tenth of them may come at once. Further requests get "
        "429. Without it there is no limit."
    ),
    # ---- pull
    "pull.NAME.catalog": (
        "The one catalog that events of this source belong to. Needed if several catalogs are configured."
    ),
    "pull.NAME.catalogs": (
        "Several catalogs: the source's name of each, and yours. The page of each "
        "[catalog](../catalogs/README.md) says what its events call it."
    ),
    "pull.NAME.dialect": (
        "The only [event format](event-formats.md) to accept from this source. `polaris` is not possible: "
        "notifications are recognised by their path."
    ),
    "pull.NAME.type": "The protocol of the source. It needs the [extra](../get-started/pip.md#extras) `nats`.",
    "pull.NAME.servers": (
        "The servers, as `nats://host:port` or `tls://host:port`. One of several is enough. `tls://` refuses "
        "servers without TLS."
    ),
    "pull.NAME.subject": "The subject. `*` stands for one level, `>` for any number of levels at the end.",
    "pull.NAME.queue": (
        "With core NATS: the group of processes that share the messages. Sources with overlapping subjects need "
        "one each."
    ),
    "pull.NAME.stream": (
        "With JetStream: the stream, which must exist. Set `durable` too. Without both it is core NATS."
    ),
    "pull.NAME.durable": (
        "With JetStream: the consumer, which all replicas share. The listener creates it if needed. It refuses "
        "one with a `max_deliver`. Each source needs one of its own."
    ),
    "pull.NAME.ca_file": (
        "A file with the certificates (PEM) to trust instead of the system's. It is read for each new connection. "
        "With it, servers without TLS are refused."
    ),
    "pull.NAME.credentials_file": "The credentials: a `.creds` file. It is read for each new connection.",
    "pull.NAME.token_file": "Or a file with a token. It is read for each new connection.",
    "pull.NAME.user": "Or a user name, with `password_file`.",
    "pull.NAME.password_file": "The file with that user's password. It is read for each new connection.",
    "pull.NAME.body_limit": "The longest message; without it `listener.body_limit`.",
    # ---- catalogs
    "catalogs.NAME.type": (
        "`rest`: an Iceberg REST catalog. `pyiceberg`: any other catalog that PyIceberg opens; it needs the "
        "[extra](../get-started/pip.md#extras) `pyiceberg`. `events`: no catalog to query; events are the source of "
        "truth. A catalog of the type `events` needs `catalog_id`, `allowed_locations` and a sender."
    ),
    "catalogs.NAME.catalog_id": (
        "The catalog's identity in the SFN files. Without it the identity is derived from `uri`, `warehouse` and "
        "the prefix. If the URI changes, set it to the id that the files have."
    ),
    "catalogs.NAME.properties": (
        "With the type `pyiceberg`: PyIceberg's own properties of the catalog. They replace all keys from `uri` "
        "to `vended_credentials`. PyIceberg's own file and environment variables are not read."
    ),
    "catalogs.NAME.uri": (
        "With the type `rest`, where it is required: where the REST API begins, without `/v1`. It may contain a "
        "user and a password."
    ),
    "catalogs.NAME.warehouse": "The warehouse on that server.",
    "catalogs.NAME.ca_file": (
        "A file with the certificates (PEM) to trust instead of the system's. The listener reads the file again "
        "when it changes."
    ),
    "catalogs.NAME.headers": "HTTP headers to send with every request.",
    "catalogs.NAME.token": "The bearer token.",
    "catalogs.NAME.token_file": "Or a file with it. The listener reads the file again when it changes.",
    "catalogs.NAME.credential": "OAuth2 client credentials, as `id:secret`.",
    "catalogs.NAME.credential_file": "Or a file with them. It is read for each new token.",
    "catalogs.NAME.oauth2_uri": "Where to get tokens, if not from the catalog itself.",
    "catalogs.NAME.scope": "The OAuth2 scope.",
    "catalogs.NAME.auth": (
        "Instead of a token or a credential. `sigv4`: AWS signatures, with keys from AWS's standard chain; it "
        "needs the [extra](../get-started/pip.md#extras) `s3`. `google`: Google tokens, from the application's default "
        "credentials; it needs the [extra](../get-started/pip.md#extras) `gcs`."
    ),
    "catalogs.NAME.signing_region": "With `sigv4`: the region to sign for; without it that of the host of `uri`.",
    "catalogs.NAME.signing_name": (
        "With `sigv4`: the service to sign for, `glue` or `s3tables`; without it that of the host of `uri`."
    ),
    "catalogs.NAME.aws_profile": "With `sigv4`: a profile of AWS's shared files; without it the standard chain.",
    "catalogs.NAME.role_arn": "With `sigv4`: a role to assume.",
    "catalogs.NAME.external_id": "The external id that the role asks for.",
    "catalogs.NAME.google_credentials_file": (
        "With `google`: the key file of a service account; without it the application's default credentials."
    ),
    "catalogs.NAME.vended_credentials": (
        "Open the stores with the credentials that the catalog vends for each table. With the type `rest` only. "
        "See [vended credentials](../stores/vended-credentials.md)."
    ),
    "catalogs.NAME.replica_lag": (
        "How long an answer of the catalog may be behind: the lag of its replicas, and the clock skew of the "
        "hosts. `0` for a catalog of one instance."
    ),
    "catalogs.NAME.absence_delay": "How long a table must be missing before it counts as dropped.",
    "catalogs.NAME.max_drops": (
        "The drop limit: how many drops and rollbacks may pass within an hour. The rest wait for an operator. "
        "Without this key at most 10 or 1 % of the tables pass, whichever is greater. Of drops then also fewer "
        "than half of the tables pass, but always one. A number replaces both limits; one as large as the catalog "
        "protects nothing."
    ),
    "catalogs.NAME.include": (
        "The tables to publish; all without it. Globs over dotted names: `*` stands for characters within one "
        "level, `**` for any number of levels. Characters other than letters, digits, `-` and `_` are "
        "percent-encoded: the table `a b` is `a%20b`."
    ),
    "catalogs.NAME.exclude": "The tables not to publish. It wins over `include`, and is written in the same way.",
    "catalogs.NAME.allowed_locations": (
        "Prefixes that a table's location must be below; any place below a store without it."
    ),
    "catalogs.NAME.version_hint": "Whether to write `version-hint.text`, for readers that do not know SFN files.",
    "catalogs.NAME.on_drop": (
        "What happens to the files of a dropped table. `tombstone`: they say that the table was dropped. "
        "`delete`: they are deleted. `keep`: they stay as they are."
    ),
    "catalogs.NAME.expire_after": "How long a tombstone stays.",
    "catalogs.NAME.refresh_after": (
        "When a file that did not change is written again. Keep it below `12h`: orphan cleaners delete unknown "
        "files that are a day old. `sfn check` warns."
    ),
    "catalogs.NAME.min_publish_interval": "The least time between two publishes of one table, at most `1h`.",
    "catalogs.NAME.naming": (
        "The names of the SFN files. `identifier`: readers that know the table's name list nothing. `uuid`: names "
        "that survive a rename. `ordinal`: a file for each commit. Another value moves each table's files when it "
        "is processed next."
    ),
    "catalogs.NAME.placement": (
        "Where the SFN files lie: `inside` the metadata folder, `alongside` it, or below `root`. Another value "
        "moves each table's files when it is processed next."
    ),
    "catalogs.NAME.root": (
        "With the placement `root`: the folder in which each table has a folder. It must exist. There are no "
        "version hints."
    ),
    "catalogs.NAME.branches": (
        "Globs of the branches that have files. `main` must be among them. Other values are not possible with the "
        "naming `ordinal`."
    ),
    "catalogs.NAME.keep": (
        "With the naming `ordinal`: how many files of commits stay at least. A table never has more than 900."
    ),
    "catalogs.NAME.keep_for": "With the naming `ordinal`: how long the other files of commits stay.",
    # ---- stores
    "stores.NAME.prefix": (
        "Where the tables lie: a folder of this machine, at the path that the catalog uses; or a bucket or a part "
        "of one. `/warehouse`, `s3://bucket/warehouse`, `abfss://container@account.dfs.core.windows.net`, "
        "`gs://bucket`."
    ),
    "stores.NAME.unsafe_unconditional_writes": (
        "Accept a store that does not keep the conditions of writes. Two writers may then overwrite each other. "
        "For a single replica only."
    ),
    "stores.NAME.links_to": (
        "Local folders only: folders outside the prefix that symbolic links above a table's location may lead to."
    ),
    "stores.NAME.endpoint": "The store's address, if not the provider's own. All stores but local folders.",
    "stores.NAME.ca_file": (
        "A file with the certificates (PEM) to trust instead of the system's. All stores but local folders."
    ),
    "stores.NAME.anonymous": "Send requests without credentials. All stores but local folders.",
    "stores.NAME.region": "S3: the bucket's region. Without it AWS's standard chain, then what the bucket answers.",
    "stores.NAME.path_style": "S3: whether the bucket's name is part of the path. Without it: only with an `endpoint`.",
    "stores.NAME.profile": "S3: a profile of AWS's shared files.",
    "stores.NAME.access_key_id": "S3: an access key, with `secret_access_key`.",
    "stores.NAME.secret_access_key": "S3: the secret of that key.",
    "stores.NAME.session_token": "S3: the session token of temporary keys.",
    "stores.NAME.role_arn": "S3: a role to assume, with the credentials that are found otherwise.",
    "stores.NAME.external_id": "S3: the external id that the role asks for.",
    "stores.NAME.account_key": "Azure: the key of the account.",
    "stores.NAME.sas_token": "Azure: a shared access signature instead.",
    "stores.NAME.tenant_id": "Azure: the tenant of an application, with `client_id` and `client_secret`.",
    "stores.NAME.client_id": "Azure: the id of an application; alone, the id of a managed identity.",
    "stores.NAME.client_secret": "Azure: the secret of an application.",
    "stores.NAME.credentials_file": (
        "GCS: the key file of a service account, or another file that Google's libraries take."
    ),
    "stores.NAME.billing_project": "GCS: the project that pays for the requests.",
    # ---- gateway
    "gateway.NAME.upstream": "The catalog that receives the requests: where its REST API begins, without `/v1`.",
    "gateway.NAME.catalog": (
        "Your name of that catalog. Without it: the catalog with the gateway's name, or the only one."
    ),
    "gateway.NAME.catalogs": (
        "Several catalogs behind one address: the prefix of each in requests, and your name of it."
    ),
    "gateway.NAME.host": (
        "An HTTP address of its own, where the gateway begins at `/`. Without it the gateway is at "
        "`/catalog/NAME` of the listener. It has the certificate of `[listener]`."
    ),
    "gateway.NAME.port": "The port of that address. 0 takes any free port.",
    "gateway.NAME.public_url": (
        "The address that clients use. Without it: as the client's request and the proxies' headers say."
    ),
    "gateway.NAME.ca_file": (
        "A file with the certificates (PEM) to trust instead of the system's. The listener reads the file again "
        "when it changes."
    ),
    "gateway.NAME.timeout": "How long the catalog may be silent during a request, from `1s` to `30m`.",
    "gateway.NAME.connections": "The most connections to the catalog.",
    "gateway.NAME.idle": (
        "How long a connection to the catalog may have been idle before a commit is sent over it, at most `10m`. "
        "A `Keep-Alive: timeout=N` of the catalog replaces it."
    ),
    "gateway.NAME.body_limit": (
        "The longest body that is read before the request is forwarded, and to find the tables that it names. For "
        "a longer one the whole catalog is swept."
    ),
    "gateway.NAME.on_inbox_failure": (
        "What happens to a commit while the inbox takes no intent. `pass`: it passes, and the catalog is swept "
        "later. `refuse`: the client gets 503, and nothing was done."
    ),
    # ---- facade
    "facade.token": "The bearer token of readers.",
    "facade.token_file": "A file with such tokens, one a line. The listener reads the file again when it changes.",
    "facade.open": "Let everyone read who reaches the listener.",
    "facade.roots": "Show only tables below these prefixes; those of all stores without it.",
    "facade.directories": "Whether readers may name a table by its directory, in the namespace `dir`.",
    "facade.metadata_limit": "The most JSON of a metadata file.",
    # ---- admin
    "admin.token": "The bearer token of operators.",
    "admin.token_file": "A file with such tokens, one a line. The listener reads the file again when it changes.",
    # ---- telemetry
    "telemetry.level": "The least severity to log.",
    "telemetry.format": "`json`: JSON lines. `console`: text. `auto`: text on a terminal, else JSON lines.",
    "telemetry.metrics_token": (
        "The bearer token for `/metrics`. Without a token everyone who reaches the listener may read the metrics."
    ),
    "telemetry.metrics_token_file": (
        "A file with such tokens, one a line. The listener reads the file again when it changes."
    ),
    "telemetry.late_after": (
        "A table is late if a change of it has waited longer than this for its publish. `sfn status` and "
        "`sfn tables --late` name late tables."
    ),
    "telemetry.traces_endpoint": (
        "The URL of an OpenTelemetry collector that accepts OTLP over HTTP. `/v1/traces` is added to a URL without a "
        "path. Needs the extra `otel`. Without this key, the standard variable `OTEL_EXPORTER_OTLP_ENDPOINT` decides; "
        "without both, no traces are recorded. See [Traces](../operate/traces.md)."
    ),
    "telemetry.traces_sample_ratio": (
        "Which part of the traces is recorded, from 0 to 1, of those that begin in the listener. A trace that a client "
        "began is recorded if the client records it. Without this key, the standard variable `OTEL_TRACES_SAMPLER` "
        "decides; without both, all traces are recorded."
    ),
    "telemetry.traces_headers": "HTTP headers of each request to the collector, such as a key.",
    "telemetry.traces_ca_file": "A file of certificates (PEM) for the collector, instead of the system's.",
}
