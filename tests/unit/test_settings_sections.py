"""Settings of gateways, pull sources, senders, stores and event-only catalogs."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta

import pytest

from sfn.http.secrets import AuthScheme
from sfn.settings.sections import KEYS_BY_SCHEME, StoreSettings
from tests.support.settings_file import CATALOG, Ground
from tests.unit.webhooks import SECRET

GATEWAY = '[gateway.prod]\nupstream = "https://catalog.example/api"\n'
DEV = '[catalogs.dev]\nuri = "https://dev.example"\n'


def test_a_gateway_needs_no_more_than_its_catalog(ground: Ground) -> None:
    settings = ground.load(CATALOG + GATEWAY)
    gateway = settings.gateway["prod"]
    assert (gateway.upstream, gateway.host, gateway.on_inbox_failure) == ("https://catalog.example/api", None, "pass")
    assert gateway.idle == timedelta(milliseconds=500)
    assert (gateway.timeout, gateway.connections, gateway.body_limit) == (timedelta(minutes=10), 256, 1 << 20)


@pytest.mark.parametrize(
    ("more", "behind"),
    [
        ("", {"": "prod"}),
        ('catalog = "dev"', {"": "dev"}),
        ('catalogs = { "p%7Ca" = "prod", "b" = "dev" }', {"p%7Ca": "prod", "b": "dev"}),
    ],
)
def test_catalog_behind_a_gateway_is_set_or_has_its_name(ground: Ground, more: str, behind: dict[str, str]) -> None:
    assert ground.load(f"{CATALOG}{DEV}{GATEWAY}{more}").catalogs_behind("prod") == behind


def test_the_only_catalog_there_is_need_not_be_named(ground: Ground) -> None:
    assert ground.load(CATALOG + GATEWAY.replace("gateway.prod", "gateway.front")).catalogs_behind("front") == {
        "": "prod"
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('catalog = "prod"\ncatalogs = { a = "prod" }', "catalog: expected either catalog or catalogs, found both"),
        ('catalog = "prd"', "catalog: expected a configured catalog, found prd; did you mean prod?"),
        ('catalogs = { a = "prd" }', "catalogs] a: expected a configured catalog, found prd; did you mean prod?"),
        ('timeout = "31m"', "timeout: "),
        ('timeout = "500ms"', "timeout: "),
        ('on_inbox_failure = "ignore"', "on_inbox_failure: "),
        ("connections = 0", "connections: "),
        ('host = "0.0.0.0"\nport = 8085', "port: expected an address of its own, found that of listener; set another"),
        ('public_url = "https://sfn/?a=b"', "public_url: expected a URL without user"),
        ('upstrem = "x"', "upstrem: "),
    ],
)
def test_invalid_gateway_settings_are_refused(ground: Ground, more: str, said: str) -> None:
    (problem,) = ground.problems(f"{CATALOG}{GATEWAY}{more}")
    assert "gateway.prod" in problem
    assert said in problem


def test_of_several_catalogs_one_is_named(ground: Ground) -> None:
    problem = ground.problem(CATALOG + DEV + GATEWAY.replace("gateway.prod", "gateway.front"))
    assert problem.endswith(
        "[gateway.front] catalog: expected the configured name of the catalog behind it, as several are configured, "
        "found none; choose one of prod, dev"
    )


def test_a_user_in_its_address_is_refused_and_not_repeated(ground: Ground) -> None:
    problem = ground.problem(CATALOG + GATEWAY.replace("https://", "https://me:s3cret@"))
    assert "a URL without user, query and fragment, as clients send their own credentials" in problem
    assert "s3cret" not in problem


@pytest.mark.parametrize(
    "upstream",
    [
        "https://glue.eu-central-1.amazonaws.com/iceberg",
        "https://s3tables.us-east-1.amazonaws.com/iceberg",
        "https://glue-fips.us-gov-west-1.api.aws/iceberg",
        "https://vpce-1.glue.eu-west-1.vpce.amazonaws.com/iceberg",
    ],
)
def test_catalog_with_signed_requests_cannot_be_behind_a_gateway(ground: Ground, upstream: str) -> None:
    problem = ground.problem(CATALOG + GATEWAY.replace("https://catalog.example/api", upstream))
    assert "as they cover the host and a gateway would invalidate them" in problem
    assert "EventBridge" in problem


def test_catalog_with_auth_sigv4_cannot_be_behind_a_gateway(ground: Ground) -> None:
    signed = '[catalogs.prod]\nuri = "https://x.execute-api.eu-west-1.amazonaws.com/api"\nauth = "sigv4"\n'
    assert "without SigV4 signatures" in ground.problem(signed + GATEWAY)


def test_event_only_catalog_cannot_be_behind_a_gateway(ground: Ground) -> None:
    hive = (
        '[catalogs.hive]\ntype = "events"\ncatalog_id = "t"\nallowed_locations = ["/w"]\n'
        '[senders.etl]\nsecrets = { main = "a" }\ncatalog = "hive"\n'
    )
    problem = ground.problem(f'{CATALOG}{hive}{GATEWAY}catalog = "hive"')
    assert (
        "expected a catalog that can be queried, as each commit is checked there, found hive, of type events" in problem
    )


@pytest.mark.parametrize("upstream", ["http://127.0.0.1:8085", "http://127.0.0.1:8085/catalog/prod"])
def test_a_gateway_before_itself_is_refused(ground: Ground, upstream: str) -> None:
    problem = ground.problem(CATALOG + GATEWAY.replace("https://catalog.example/api", upstream))
    assert "expected the catalog's address, found the service's own" in problem


def at(*hosts: str) -> str:
    """Gateways at one port of these addresses."""
    catalogs = ("prod", "dev")
    own = (f'{GATEWAY.replace("prod", name)}host = "{host}"\n' for name, host in zip(catalogs, hosts, strict=True))
    return CATALOG + DEV + "".join(own)


@pytest.mark.parametrize(
    "hosts",
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "localhost"),
        ("0.0.0.0", "127.0.0.1"),  # noqa: S104 - read, not bound
        ("sfn.example", "0.0.0.0"),  # noqa: S104 - read, not bound
        ("sfn.example", "SFN.example"),
        ("::", "127.0.0.1"),
        ("::1", "[0:0:0:0:0:0:0:1]"),
        ("[::]", "::1"),
    ],
)
def test_two_gateways_at_one_address_are_refused(ground: Ground, hosts: tuple[str, str]) -> None:
    (problem,) = ground.problems(at(*hosts))
    assert "[gateway.dev] port: expected an address of its own, found that of gateway.prod" in problem


@pytest.mark.parametrize("hosts", [("127.0.0.1", "127.0.0.2"), ("0.0.0.0", "::1"), ("10.0.0.1", "sfn.example")])  # noqa: S104 - read, not bound
def test_one_port_of_several_addresses_is_several(ground: Ground, hosts: tuple[str, str]) -> None:
    assert [one.host for one in ground.load(at(*hosts)).gateway.values()] == [*hosts]


def test_the_listeners_port_of_another_address_is_one_of_its_own(ground: Ground) -> None:
    ground.load(f'{CATALOG}{GATEWAY}host = "127.0.0.2"\nport = 8085\n')


def test_any_free_port_is_one_of_its_own(ground: Ground) -> None:
    ground.load("[listener]\nport = 0\n" + at("127.0.0.1", "127.0.0.1").replace("host =", "port = 0\nhost ="))


PULL = "[pull.events]\nservers = ['nats://a:4222']\nsubject = 'lakekeeper'\n"
TWO = CATALOG + CATALOG.replace("prod", "dev")


def test_a_source_says_where_it_is_and_what_it_speaks_for(ground: Ground) -> None:
    settings = ground.load(f"{TWO}{PULL}catalogs = {{ theirs = 'dev' }}")
    pull = settings.pull["events"]
    assert (pull.type, pull.servers, pull.subject, pull.queue) == ("nats", ("nats://a:4222",), "lakekeeper", "sfn")
    assert (pull.stream, pull.durable, pull.body_limit) == (None, None, None)
    assert settings.catalogs_of("pull.events") == {"theirs": "dev"}


def test_a_source_that_names_no_catalog_speaks_for_the_only_one(ground: Ground) -> None:
    assert ground.load(CATALOG + PULL).catalogs_of("pull.events") == {"prod": "prod"}


def test_a_source_is_set_by_variables_as_well(ground: Ground) -> None:
    environ = {
        "SFN_PULL__EVENTS__SERVERS": "tls://a, tls://[::1]:4222",
        "SFN_PULL__EVENTS__SUBJECT": "a.*.>",
        "SFN_PULL__EVENTS__STREAM": "s",
        "SFN_PULL__EVENTS__DURABLE": "d",
        "SFN_PULL__EVENTS__BODY_LIMIT": "64KiB",
    }
    pull = ground.load(CATALOG, environ).pull["events"]
    assert pull.servers == ("tls://a", "tls://[::1]:4222")
    assert (pull.subject, pull.stream, pull.durable, pull.body_limit) == ("a.*.>", "s", "d", 65_536)


@pytest.mark.parametrize(
    ("servers", "more", "encrypted"),
    [
        ("['tls://a', 'tls://b']", "", True),
        ("['tls://a', 'nats://b']", "", False),
        ("['nats://a']", "ca_file = '/ca.pem'", True),
    ],
)
def test_tls_is_insisted_on_where_all_servers_or_the_authorities_say_so(
    ground: Ground, servers: str, more: str, encrypted: bool
) -> None:
    settings = ground.load(f"{CATALOG}[pull.e]\nservers = {servers}\nsubject = 's'\n{more}")
    assert settings.pull["e"].is_encrypted == encrypted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[pull.e]\nsubject = 's'", "[pull.e] servers: expected a value, found none"),
        ("[pull.e]\nservers = ['nats://a']", "[pull.e] subject: expected a value, found none"),
        (PULL + "type = 'kafka'", "[pull.events] type: expected 'nats'"),
        (PULL + "subjects = 'x'", "found the unknown subjects; did you mean subject?"),
        (PULL + "stream = 's'", "[pull.events] durable: expected a value, as stream is set, found none"),
        (PULL + "durable = 'd'", "[pull.events] stream: expected a value, as durable is set, found none"),
        (PULL + "stream = 's'\ndurable = 'd'\nqueue = 'q'", "queue: expected no queue group with a stream"),
        (PULL + "user = 'u'", "[pull.events] password_file: expected a value, as user is set"),
        (PULL + "password_file = '/p'", "[pull.events] user: expected a value, as password_file is set"),
        (
            PULL + "token_file = '/t'\ncredentials_file = '/c'",
            "found credentials_file and token_file; keep one of them",
        ),
        (PULL + "token_file = '/t'\nuser = 'u'\npassword_file = '/p'", "user: expected one kind of credentials"),
        (PULL + "catalog = 'prot'", "expected a configured catalog, found prot; did you mean prod?"),
        (PULL + "catalogs = { x = 'dev' }", "[pull.events.catalogs] x: expected a configured catalog"),
        (PULL + "catalog = 'prod'\ncatalogs = { x = 'prod' }", "expected either catalog or catalogs, found both"),
        (PULL + '[senders."pull.events"]\nsecrets = { m = "t" }', "found the name that events from [pull.events]"),
        (PULL.replace("['nats://a:4222']", "[]"), "[pull.events] servers"),
        (
            PULL + "dialect = 'polaris'",
            "[pull.events] dialect: expected a format that can be recognised from a message, found polaris",
        ),
    ],
)
def test_invalid_pull_settings_are_refused(ground: Ground, text: str, told: str) -> None:
    assert told in ground.problem(CATALOG + text)


STREAM = "stream = 's'\ndurable = 'd'\n"
QUEUE = "queue = 'q'\n"


def other(more: str = "", server: str = "nats://a", subject: str = "lakekeeper") -> str:
    """One more source, of the same messages."""
    return f"[pull.other]\nservers = ['nats://z', '{server}']\nsubject = '{subject}'\n{more}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (PULL + other(), "[pull.other] queue: expected another queue than that of [pull.events], found sfn"),
        (PULL + QUEUE + other(QUEUE), "[pull.other] queue: expected another queue than that of [pull.events], found q"),
        (PULL + other(server="tls://A:4222"), "[pull.other] queue: expected another"),
        (PULL + other(subject="*"), "[pull.other] queue: expected another"),
        (
            PULL + STREAM + other(STREAM),
            "[pull.other] durable: expected another durable than that of [pull.events], found d",
        ),
        (PULL + STREAM + other(STREAM, subject="x"), "[pull.other] durable: expected another"),
    ],
)
def test_no_source_takes_the_messages_of_another(ground: Ground, text: str, told: str) -> None:
    assert told in ground.problem(CATALOG + text)


@pytest.mark.parametrize(
    "text",
    [
        PULL + other(QUEUE),
        PULL + other(server="nats://a:4223"),
        PULL + other(server="nats://b"),
        PULL + other(subject="lakekeeper.x"),
        PULL + other(STREAM),
        PULL + STREAM + other(STREAM.replace("'s'", "'t'")),
        PULL + STREAM + other(STREAM.replace("'d'", "'e'")),
    ],
)
def test_sources_that_share_no_messages_stand_side_by_side(ground: Ground, text: str) -> None:
    assert set(ground.load(CATALOG + text).pull) == {"events", "other"}


def test_incomplete_stream_is_reported_once(ground: Ground) -> None:
    half = "stream = 's'\n"
    first, second = ground.problems(CATALOG + PULL + half + other(half))
    assert "[pull.events] durable: expected a value" in first
    assert "[pull.other] durable: expected a value" in second


def test_where_there_are_several_catalogs_a_source_must_name_its_own(ground: Ground) -> None:
    assert "expected the catalog of its events, as several are configured" in ground.problem(TWO + PULL)


@pytest.mark.parametrize(
    "server",
    ["a:4222", "http://a", "nats://", "nats://a:x", "nats://a:0", "nats://u:s3cret@a", "nats://a/x", "nats://a?x=1"],
)
def test_invalid_server_url_is_refused_and_not_repeated(ground: Ground, server: str) -> None:
    problem = ground.problem(CATALOG + PULL.replace("nats://a:4222", server))
    assert "servers: expected nats://host:port or tls://host:port" in problem
    assert "s3cret" not in problem


@pytest.mark.parametrize("subject", ["a..b", ".a", "a.", "a b", ">.a", "a.>.b", "a*", "a.b>", ""])
def test_invalid_subject_is_refused(ground: Ground, subject: str) -> None:
    assert "[pull.events] subject" in ground.problem(CATALOG + PULL.replace("lakekeeper", subject))


@pytest.mark.parametrize("subject", ["a", "a.b-c_d", "*", ">", "*.b.*", "a.>", "größe.1"])
def test_a_subject_may_have_wildcards(ground: Ground, subject: str) -> None:
    assert ground.load(CATALOG + PULL.replace("lakekeeper", subject)).pull["events"].subject == subject


@pytest.mark.parametrize("key", ["stream", "durable", "queue"])
@pytest.mark.parametrize("name", ["a.b", "a b", "*", ">", "a/b"])
def test_invalid_nats_name_is_refused(ground: Ground, key: str, name: str) -> None:
    both = {"stream": "s", "durable": "d"} if key != "queue" else {}
    text = "".join(f"{one} = '{value}'\n" for one, value in {**both, key: name}.items())
    assert f"[pull.events] {key}: expected a name without spaces" in ground.problem(CATALOG + PULL + text)


TEXT = "a text of sixteen"
TOLD = "[catalogs.out]\ntype = 'events'\ncatalog_id = 'out'\nallowed_locations = ['/w']\n"


def webhook(size: int) -> str:
    return f"whsec_{b64encode(bytes(range(size))).decode()}"


def sender(scheme: str, more: str = "", name: str = "a") -> str:
    return f"{CATALOG if name == 'a' else ''}[senders.{name}]\nscheme = '{scheme}'\ncatalog = 'prod'\n{more}\n"


@pytest.mark.parametrize(
    ("scheme", "secret"),
    [
        *(("bearer", "x"), ("bearer", SECRET), ("hmac-sha256", TEXT), ("hmac-sha256", "ein Text voller Größe 🧊")),
        *(("hmac-sha256", "x" * 1_024), ("hmac-sha256", SECRET), ("standard-webhooks", SECRET)),
        *(("standard-webhooks", webhook(size)) for size in (24, 25, 26, 32, 64)),
    ],
)
def test_each_scheme_takes_secrets_of_its_form(ground: Ground, scheme: str, secret: str) -> None:
    text = sender(scheme, f"secrets = {{ m = '{secret}' }}")
    loaded = ground.load(text).senders["a"]
    assert loaded.scheme == scheme
    assert loaded.secrets["m"].get_secret_value() == secret


@pytest.mark.parametrize(
    ("scheme", "secret", "said"),
    [
        ("bearer", "two words", "visible ASCII characters without spaces"),
        ("bearer", "", "visible ASCII characters without spaces"),
        *(
            ("standard-webhooks", secret, "whsec_ and the base64 of 24 to 64 random bytes")
            for secret in (
                *("", "whsec_", SECRET.removeprefix("whsec_"), f"v1,{SECRET}", SECRET.replace("whsec", "whsk"), TEXT),
                *(webhook(23), webhook(65), webhook(25).rstrip("="), f"{webhook(24)}==", f"{SECRET}\\n", f" {SECRET}"),
                *(webhook(25).replace("GA==", "GB=="), SECRET.replace("w", "-"), SECRET.upper(), "whsec_ä"),
            )
        ),
        *(
            ("hmac-sha256", secret, "a text of 16 to 1024 printable characters")
            for secret in (
                *("", "fifteen of them", "x" * 1_025, f" {TEXT}", f"{TEXT} ", f"{TEXT}\\n", f"{TEXT}\\u2028{TEXT}"),
                *(f"{TEXT}\\u0000", f"\\u00a0{TEXT}", f"{TEXT}\\u202e{TEXT}"),
            )
        ),
    ],
)
def test_another_form_is_refused_where_it_stands_and_not_repeated(
    ground: Ground, scheme: str, secret: str, said: str
) -> None:
    problem = ground.problem(sender(scheme, f'secrets = {{ m = "{secret}" }}'))
    assert problem.startswith(f"sfn.toml: [senders.a.secrets] m: expected {said}")
    assert problem.endswith("found another value")


def test_a_wrong_secret_of_the_environment_is_named_as_its_variable(ground: Ground) -> None:
    problem = ground.problem(sender("standard-webhooks"), {"SFN_SENDERS__A__SECRETS": "{ m = 's3cret' }"})
    assert problem.startswith("SFN_SENDERS__A__SECRETS: ")
    assert "s3cret" not in problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            sender("hmac", "secrets = { m = 'x' }"),
            "[senders.a] scheme: expected 'bearer', 'standard-webhooks', 'hmac-sha256' or 'none', found 'hmac'",
        ),
        (sender("standard-webhooks"), "secrets: expected a secret, found neither secrets nor secrets_file"),
        (sender("hmac-sha256"), "secrets: expected a secret, found neither secrets nor secrets_file"),
        (sender("none", "secrets = { m = 'x' }"), "secrets: expected none with the scheme none, found some"),
        (sender("none", "secrets_file = '/f'"), "secrets: expected none with the scheme none, found some"),
        *(
            (sender(scheme, f"{more}signature_header = 'X-Hub-Signature-256'"), f"with the scheme {scheme}, found one")
            for scheme, more in (
                ("bearer", "secrets_file = '/f'\n"),
                ("standard-webhooks", "secrets_file = '/f'\n"),
                ("none", ""),
            )
        ),
        *(
            (sender("hmac-sha256", f"secrets_file = '/f'\nsignature_header = '{name}'"), "[senders.a] signature_header")
            for name in ("", "X Signature", "X:Y", "ä", "x" * 65, "-x")
        ),
        (sender("bearer", "secrets_file = '/f'\nrate_limit = 0"), "[senders.a] rate_limit"),
        (sender("bearer", "secrets_file = '/f'\nrate_limit = 'many'"), "[senders.a] rate_limit"),
        (
            f"[listener]\nhost = '10.0.0.1'\n{sender('none')}",
            "[senders.a] scheme: expected authentication, as 10.0.0.1 is not a loopback address, found none; give",
        ),
        (
            sender("none") + sender("none", name="b"),
            "[senders.b] scheme: expected authentication, as only one sender can be without, and a is, found none",
        ),
        (
            TOLD + CATALOG + "[senders.a]\nscheme = 'none'\ncatalogs = { x = 'prod', y = 'out' }",
            "[senders.a] scheme: expected authentication, as events are the source of truth for out",
        ),
        (
            sender("hmac-sha256", f"secrets = {{ m = '{SECRET}' }}")
            + sender("standard-webhooks", f"secrets = {{ n = '{SECRET}' }}", "b"),
            "[senders.b.secrets] n: expected a token of its own, found one of the sender a",
        ),
        (
            "[inbox]\nevent_retention = '599s'\n" + sender("standard-webhooks", "secrets_file = '/f'"),
            "[inbox] event_retention: expected at least 10 min, as a signed message can be repeated that long, found",
        ),
    ],
)
def test_settings_of_senders_that_do_not_fit_together_are_refused(ground: Ground, text: str, said: str) -> None:
    assert said in ground.problem(text)


def test_one_local_sender_may_be_unauthenticated(ground: Ground) -> None:
    loaded = ground.load(sender("none") + sender("bearer", "secrets_file = '/f'\nrate_limit = 60", "b"))
    assert {name: one.scheme for name, one in loaded.senders.items()} == {"a": AuthScheme.NONE, "b": AuthScheme.BEARER}
    assert (loaded.senders["a"].rate_limit, loaded.senders["b"].rate_limit) == (None, 60)


def test_event_retention_is_free_without_standard_webhooks(ground: Ground) -> None:
    text = "[inbox]\nevent_retention = '1s'\n" + sender("hmac-sha256", "secrets_file = '/f'")
    assert ground.load(text).senders["a"].signature_header == "X-Hub-Signature-256"


def test_ten_minutes_of_memory_are_enough(ground: Ground) -> None:
    ground.load("[inbox]\nevent_retention = '10m'\n" + sender("standard-webhooks", "secrets_file = '/f'"))


S3, AZURE, GCS = "s3://bucket/wh", "abfss://c@account.dfs.core.windows.net/wh", "gs://bucket/wh"


def section(prefix: str, *lines: str) -> str:
    return CATALOG + "\n".join(["[stores.lake]", f'prefix = "{prefix}"', *lines])


def test_every_key_goes_with_a_service() -> None:
    everywhere = {"prefix", "unsafe_unconditional_writes"}
    assert frozenset[str]().union(*KEYS_BY_SCHEME.values()) | everywhere == StoreSettings.model_fields.keys()


@pytest.mark.parametrize(
    ("prefix", "scheme"),
    [
        (S3, "s3"),
        ("s3a://bucket/wh", "s3"),
        (AZURE, "abfss"),
        ("wasbs://c@account.blob.core.windows.net", "abfss"),
        ("gcs://bucket", "gs"),
        ("/warehouse", "file"),
        ("file:/warehouse", "file"),
    ],
)
def test_each_kind_of_url_has_its_service(ground: Ground, prefix: str, scheme: str) -> None:
    settings = ground.load(section(prefix))
    assert settings.stores["lake"].scheme == scheme


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (section("/warehouse", "region = 'x'"), "region: expected no such key with the prefix file:///warehouse"),
        (section("/warehouse", "region = 'x'"), "it goes with s3:"),
        (section(S3, "sas_token = 'x'"), "remove it; it goes with abfss:"),
        (section(GCS, "path_style = true"), "path_style: expected no such key"),
        (section(S3, "access_key_id = 'x'"), "secret_access_key: expected a value, as access_key_id is set"),
        (section(S3, "access_key_id = 'x'"), "set it there or as SFN_STORES__LAKE__SECRET_ACCESS_KEY"),
        (section(S3, "session_token = 'x'"), "access_key_id: expected a value, as session_token is set"),
        (section(S3, "external_id = 'x'"), "role_arn: expected a value, as external_id is set"),
        (section(AZURE, "client_secret = 'x'", "client_id = 'y'"), "tenant_id: expected a value"),
        (section(S3, "anonymous = true", "profile = 'x'"), "profile: expected one kind of credentials, found anon"),
        (section(AZURE, "account_key = 'x'", "sas_token = 'y'"), "found account_key and sas_token; keep one of them"),
    ],
)
def test_keys_that_do_not_fit_are_named(ground: Ground, text: str, said: str) -> None:
    assert said in ground.problem(text)


def test_no_secret_of_a_store_shows(ground: Ground) -> None:
    settings = ground.load(section(S3, "access_key_id = 'x'", "secret_access_key = 'abracadabra'"))
    assert "abracadabra" not in repr(settings)


def test_links_lead_into_folders_of_this_machine(ground: Ground) -> None:
    settings = ground.load(section("/warehouse", "links_to = ['/mnt/disk2/']"))
    assert settings.stores["lake"].links_to == ("file:///mnt/disk2",)
    assert "links_to: expected local folders" in ground.problem(section("/w", "links_to = ['s3://lake/w']"))
    assert "it goes with file:" in ground.problem(section(S3, "links_to = ['/mnt/disk2']"))


SENDER = """
[senders.etl]
secrets = { main = "a" }
catalog = "hive"
"""
EVENT_ONLY = f"""
{SENDER}
[catalogs.hive]
type = "events"
catalog_id = "hive-prod"
allowed_locations = ["s3://lake/"]
"""


def test_event_only_catalog_needs_no_uri(ground: Ground) -> None:
    settings = ground.load(EVENT_ONLY + CATALOG)
    assert settings.event_only_catalogs == {"hive"}
    assert settings.catalogs["hive"].allowed_locations == ("s3://lake",)


def test_event_only_catalog_requires_an_authenticated_sender(ground: Ground) -> None:
    assert ground.problem(EVENT_ONLY.replace(SENDER, "")) == (
        "sfn.toml: senders: expected a sender with a token, as events are the source of truth for hive, found none; "
        'configure a sender: [senders.NAME] secrets = { main = "…" }'
    )


@pytest.mark.parametrize("key", ["catalog_id", "allowed_locations"])
def test_event_only_catalog_requires_catalog_id_and_locations(ground: Ground, key: str) -> None:
    without = "\n".join(line for line in EVENT_ONLY.splitlines() if not line.startswith(key))
    assert ground.problem(without) == (
        f"sfn.toml: [catalogs.hive] {key}: expected a value, as a catalog of type events cannot be queried for it, "
        f"found none; set it there or as SFN_CATALOGS__HIVE__{key.upper()}"
    )


@pytest.mark.parametrize(
    "more",
    [
        "uri = 'http://user:s3cret@catalog'",
        "warehouse = 'w'",
        "ca_file = '/ca.pem'",
        "headers = { x-s3cret = 's3cret' }",
        "token = 's3cret'",
        "token_file = '/token'",
        "credential = 's3cret'",
        "credential_file = '/credential'",
        "oauth2_uri = 'http://issuer/s3cret'",
        "scope = 'catalog'",
    ],
)
def test_event_only_catalog_has_no_keys_for_queries(ground: Ground, more: str) -> None:
    problem = ground.problem(EVENT_ONLY + more)
    key = more.split(" ", maxsplit=1)[0]
    assert problem == (
        f"sfn.toml: [catalogs.hive] {key}: expected no such key with the type events, found one; "
        "remove it, because such a catalog is never queried"
    )


def test_an_unknown_type_is_refused(ground: Ground) -> None:
    assert "'rest', 'pyiceberg' or 'events'" in ground.problem('[catalogs.x]\ntype = "heard"')
