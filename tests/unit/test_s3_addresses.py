"""Where a store on S3 is, where the settings lead nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.store.objects import Kind, Refused
from sfn.store.s3.addresses import AddressBook, Place


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of AWS's shared files, which are empty."""
    for name, variable in (("config", "AWS_CONFIG_FILE"), ("credentials", "AWS_SHARED_CREDENTIALS_FILE")):
        (tmp_path / name).write_text("")
        monkeypatch.setenv(variable, str(tmp_path / name))
    return tmp_path


async def test_a_profile_that_is_not_there_is_named_and_looked_for_again(files: Path) -> None:
    book, place = AddressBook(), Place(endpoint=None, region=None, path_style=None, profile="lake")
    with pytest.raises(Refused, match=r"profile lake without them .*could not be found") as refused:
        await book.at(place)
    assert refused.value.kind is Kind.NO_ADDRESS
    (files / "config").write_text("[profile lake]\nregion = eu-west-1\n")
    assert (await book.at(place)).region == "eu-west-1"


async def test_so_is_one_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "lake")
    with pytest.raises(Refused, match=r"AWS's own configuration .*\(lake\)") as refused:
        await AddressBook().at(Place(endpoint="http://127.0.0.1:1", region="us-east-1", path_style=True, profile=None))
    assert "AWS_PROFILE" in refused.value.remedy
