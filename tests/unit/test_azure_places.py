"""Where keys lead on Azure, and what a connection string says: nothing is asked."""

from __future__ import annotations

import pytest

from sfn.errors import SfnError
from sfn.storage import ErrorKind, RequestFailed
from sfn.storage.azure import (
    AccessToken,
    AccountKey,
    AzureClient,
    AzureOptions,
    DefaultCredentialChain,
    EntraApplication,
    SharedSignature,
    blob_address,
    options_from_connection_string,
)
from sfn.storage.object_store import HttpPool
from tests.unit.azure_server import PRIVATE, refusal

URLS = {
    "abfss://lake@acct.dfs.core.windows.net/t/a.ver": "https://acct.blob.core.windows.net",
    "abfss://lake@acct.blob.core.windows.net/t/a.ver": "https://acct.blob.core.windows.net",
    "abfss://lake@Acct.DFS.core.windows.net/t/a.ver": "https://acct.blob.core.windows.net",
    "abfss://lake@acct.z42.dfs.storage.azure.net/t/a.ver": "https://acct.z42.blob.storage.azure.net",
    "abfss://lake@acct.dfs.core.chinacloudapi.cn/t/a.ver": "https://acct.blob.core.chinacloudapi.cn",
    "abfss://lake@acct.dfs.core.usgovcloudapi.net/t/a.ver": "https://acct.blob.core.usgovcloudapi.net",
    "abfss://workspace@onelake.dfs.fabric.microsoft.com/t/a.ver": "https://onelake.blob.fabric.microsoft.com",
}
STRANGE = [
    "acct.dfs.core.windows.net.example.com",
    "acct.dfs.example.com",
    "example.com",
    "dfs.core.windows.net",
    "acct.queue.core.windows.net",
    "acct.dfs.core.windows.net:8443",
    "127.0.0.1",
    "acct.dfs.core.windows.net\n",
]
KEYED = f"AccountName=acct;AccountKey={PRIVATE}"
CONNECTIONS = {
    f"DefaultEndpointsProtocol=https;{KEYED};EndpointSuffix=core.windows.net": AzureOptions(
        identity=AccountKey(PRIVATE), endpoint="https://acct.blob.core.windows.net", account="acct"
    ),
    f"{KEYED.replace('acct', 'ACCT')};": AzureOptions(
        identity=AccountKey(PRIVATE), endpoint="https://acct.blob.core.windows.net", account="acct"
    ),
    f"BlobEndpoint=http://127.0.0.1:10000/acct;{KEYED}": AzureOptions(
        identity=AccountKey(PRIVATE), endpoint="http://127.0.0.1:10000/acct", account="acct"
    ),
    "BlobEndpoint=https://acct.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=a%3D": AzureOptions(
        identity=SharedSignature("sv=1&sig=a%3D"), endpoint="https://acct.blob.core.windows.net/"
    ),
    "blobendpoint=https://acct.blob.core.windows.net": AzureOptions(
        identity=None, endpoint="https://acct.blob.core.windows.net"
    ),
}


@pytest.mark.parametrize("key", URLS)
def test_a_key_leads_to_the_blobs_of_its_account(key: str) -> None:
    place = blob_address(key, AzureOptions())
    assert place.url == URLS[key]
    assert place.account == place.url.removeprefix("https://").partition(".")[0]
    assert (place.prefix + place.path, place.path) == (key, "t/a.ver")
    assert place.container == key.partition("://")[2].partition("@")[0]


@pytest.mark.parametrize("host", STRANGE)
def test_no_credentials_are_shown_to_hosts_that_are_not_azures(host: str) -> None:
    with pytest.raises(RequestFailed) as refused:
        blob_address(f"abfss://lake@{host}/t/a.ver", AzureOptions())
    assert refused.value.kind is ErrorKind.NO_BUCKET
    assert "endpoint" in refused.value.remedy


def test_an_endpoint_stands_for_every_host() -> None:
    place = blob_address(
        "abfss://lake@Devstoreaccount1.anything/t/a.ver", AzureOptions(endpoint="http://127.0.0.1:1/acct/")
    )
    assert (place.url, place.account) == ("http://127.0.0.1:1/acct", "devstoreaccount1")


@pytest.mark.parametrize("key", ["abfss://acct.dfs.core.windows.net/t/a.ver", "abfss://@acct.dfs.core.windows.net/t"])
def test_a_key_without_a_container_leads_nowhere(key: str) -> None:
    with pytest.raises(RequestFailed) as refused:
        blob_address(key, AzureOptions())
    assert refused.value.kind is ErrorKind.INVALID_OBJECT


async def test_credentials_of_one_account_are_for_no_other() -> None:
    objects = AzureClient(options_from_connection_string(KEYED), HttpPool())
    refused = await refusal(objects.get("abfss://lake@other.dfs.core.windows.net/t/a.ver", 10))
    assert refused.kind is ErrorKind.NO_BUCKET
    assert "'other'" in refused.found


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_a_connection_string_says_where_and_as_whom(connection: str) -> None:
    assert options_from_connection_string(connection) == CONNECTIONS[connection]


@pytest.mark.parametrize("connection", ["", "AccountKey=s3cret", "s3cret", "AccountName=;AccountKey=s3cret"])
def test_a_connection_string_that_says_nothing_is_told_of_and_not_shown(connection: str) -> None:
    with pytest.raises(SfnError) as refused:
        options_from_connection_string(connection)
    assert "s3cret" not in str(refused.value)


def test_what_opens_an_account_does_not_show() -> None:
    others = (EntraApplication("tenant", "client", PRIVATE), AccessToken(PRIVATE), DefaultCredentialChain("client"))
    for terms in (*CONNECTIONS.values(), *(AzureOptions(identity=identity) for identity in others)):
        assert PRIVATE not in repr(terms)
        assert "sig=" not in repr(terms)
