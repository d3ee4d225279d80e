"""Who may operate the service."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from sfn.receiver.keyring import Keyring
from sfn.telemetry.refusals import RejectionLog

OPERATORS_PARTY: Final = "admin"
"""What the operators are called in a keyring: as their section in the settings."""


class OperatorAuth:
    """Tells operators by their token; who is none is logged.

    Args:
        keyring: whose each token is, theirs under the name `OPERATORS_PARTY`.
        refusals: told of who is turned away.
    """

    def __init__(self, keyring: Keyring, refusals: RejectionLog) -> None:
        self._keyring, self._refusals = keyring, refusals

    def authenticate(self, authorization: bytes | None, client: str | None) -> str | None:
        """The name of the token in an `Authorization` header, if it is an operator's; None for any other.

        Args:
            client: the address of who shows it, None where the server does not know it.
        """
        owner = self._keyring.owner_of(authorization)
        if owner is not None and owner[0] == OPERATORS_PARTY:
            return owner[1]
        self._refusals.log_rejected(HTTPStatus.UNAUTHORIZED, "an operator's token is needed", client)
        return None
