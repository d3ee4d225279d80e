"""`sfn config show`: the settings in effect are a file that means the same, with where each was set."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.cli.config import toml_lines
from sfn.settings import load
from sfn.settings.effective import EffectiveSetting, effective_settings

TEXT = """
[listener]
port = 9000
drain = "90s"
[catalogs.prod]
uri = "http://127.0.0.1:8181"
include = ["sales.*", "it's \\"quoted\\""]
replica_lag = "500ms"
max_drops = 0
[stores."my.lake"]
prefix = "/warehouse"
[senders.etl]
secrets = { first = "a-secret-text" }
catalog = "prod"
[sweep]
every = "off"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    return path


def shown(found: list[EffectiveSetting], key: str) -> tuple[object, str]:
    (one,) = [one for one in found if ".".join(one.keys) == key]
    return one.value, one.source


def test_each_value_has_its_source(file: Path) -> None:
    found = effective_settings(file, {"SFN_CATALOGS__PROD__MAX_DROPS": "7", "SFN_LISTENER__PORT": "9001"})
    assert shown(found, "listener.port") == (9001, "SFN_LISTENER__PORT")
    assert shown(found, "listener.drain") == ("90s", "mine.toml")
    assert shown(found, "listener.host") == ("127.0.0.1", "default")
    assert shown(found, "catalogs.prod.max_drops") == (7, "SFN_CATALOGS__PROD__MAX_DROPS")
    assert shown(found, "catalogs.prod.replica_lag") == ("500ms", "mine.toml")
    assert shown(found, "admin.token") == (None, "default")


def test_no_secret_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text(TEXT + '[inbox]\nurl = "postgresql://sfn:s3cret@db/sfn"\n[admin]\ntoken = "s3cret"')
    found = effective_settings(file, {"SFN_CATALOGS__PROD__HEADERS": '{ X-Key = "s3cret" }'})
    assert shown(found, "inbox.url")[0] == "postgresql://sfn:***@db/sfn"
    assert shown(found, "senders.etl.secrets.first") == ("***", "sfn.toml")
    assert shown(found, "catalogs.prod.headers.X-Key") == ("***", "SFN_CATALOGS__PROD__HEADERS")
    assert not {"s3cret", "a-secret-text"} & set("\n".join(toml_lines(found)).replace('"', " ").split())


def test_what_is_shown_is_a_file_that_means_the_same(file: Path, tmp_path: Path) -> None:
    settings = load(file, {})
    again = tmp_path / "again.toml"
    again.write_text("\n".join(toml_lines(effective_settings(file, {}))))
    masked = load(again, {})
    assert masked.model_copy(update={"senders": settings.senders}) == settings
