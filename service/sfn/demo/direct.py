"""PyIceberg's client of a catalog on this machine: what the environment says of proxies is not for it."""

from pyiceberg.catalog.rest import RestCatalog
from requests import Session
from typing_extensions import override


class DirectCatalog(RestCatalog):
    """A client that asks no proxy, whatever `HTTP_PROXY` is."""

    # PyIceberg has no setting for it, and its first request is sent while the client is made.
    @override
    def _create_session(self) -> Session:
        session = super()._create_session()
        session.trust_env = False
        return session
