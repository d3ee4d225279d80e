"""No secret of the settings is told, wherever it stands and whatever is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.settings.sources import ConfigurationError
from tests.unit.settings_ground import CATALOG, Ground

PYICEBERG = "[catalogs.prod]\ntype = 'pyiceberg'\nproperties = { type = 'glue' }\n"


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


SECRETS = {
    "SFN_CATALOGS__PROD__TOKEN": "s3cret-a",
    "SFN_ADMIN__TOKEN": "s3cret-b",
    "SFN_TELEMETRY__METRICS_TOKEN": "s3cret-h",
}


def test_no_representation_tells_a_secret(ground: Ground) -> None:
    text = """
        [senders.a]
        secrets = { m = "s3cret-c" }
        [catalogs.prod]
        uri = "http://user:s3cret-d@catalog"
        oauth2_uri = "http://user:s3cret-e@sso"
        headers = { X-Key = "s3cret-f" }
        [catalogs.old]
        type = "pyiceberg"
        properties = { uri = "postgresql://user:s3cret-h@host/db", type = "s3cret-i" }
        [catalogs.dev]
        uri = "http://dev"
        credential = "s3cret-g"
    """
    settings = ground.load(text.replace("[senders.a]", "[senders.a]\n        catalog = 'prod'"), SECRETS)
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in str(settings)


@pytest.mark.parametrize(
    "text",
    [
        "admin = 's3cret'",
        "[admin]\ntoken = 's3cret with spaces'",
        "[admin]\ntoken = ['s3cret']",
        "[admin]\ntokn = 's3cret'",
        "[admin]\ntoken = { x = 's3cret' }",
        "[senders]\netl = 's3cret'",
        CATALOG + "[senders.etl]\nsecrets = 's3cret'",
        CATALOG + "[senders.etl]\nsecrets = ['s3cret']",
        CATALOG + "[senders.etl]\nsecrets = { main = 's3cret s3cret' }",
        "[catalogs.prod]\nuri = 'ftp://user:s3cret@x'",
        CATALOG + "allowed_locations = ['s3://user:s3cret@bucket/w']",
        "[stores.s]\nprefix = 's3://user:s3cret@bucket/w'",
        CATALOG + "oauth2_uri = 'user:s3cret@x'",
        PYICEBERG.replace("{ type = 'glue' }", "'s3cret'"),
        PYICEBERG.replace("'glue'", "['s3cret']"),
    ],
)
def test_no_problem_tells_a_secret(ground: Ground, text: str) -> None:
    problems = ground.problems(text)
    assert "s3cret" not in str(problems)


def test_no_cause_tells_a_secret(ground: Ground) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ground.load("[admin]\ntoken = 's3cret with spaces'")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
