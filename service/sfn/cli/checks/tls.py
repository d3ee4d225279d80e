"""The listener's certificate: taken into use as the service does, and how long it is still valid."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sfn.cli.checks.findings import CheckFinding, Severity, error_finding, ok_finding, warning_finding
from sfn.clock import format_duration
from sfn.errors import FatalError
from sfn.http.server import Certificate

RENEW_BEFORE: Final = timedelta(days=14)
"""What is valid for less should have been renewed by now."""

_MAX_HANDSHAKE_STEPS: Final = 8
"""Turns of a handshake; TLS takes three."""


def certificate_finding(chain: Path, key: Path, now: datetime) -> CheckFinding:
    """Whether a client that trusts it would take it, now and for a while."""
    where, renew = "listener.tls_certificate_file", "renew it: both files are read again when they change"
    try:
        shown = Certificate(chain, key)
    except FatalError as error:
        return error_finding(where, error)
    try:
        until = _valid_until(shown.context, chain)
    except ssl.SSLCertVerificationError as error:
        return CheckFinding(
            where, Severity.ERROR, f"{chain}: expected a valid one, found: {error.verify_message}", renew
        )
    if until - now < RENEW_BEFORE:
        return warning_finding(where, f"{chain}: valid for {format_duration(until - now)} only", renew)
    return ok_finding(where, f"{chain}: valid for {format_duration(until - now)}, and the key is its own")


def _valid_until(shown: ssl.SSLContext, chain: Path) -> datetime:
    """The end of its life, by a handshake in memory with a client that trusts just it: the standard library parses no
    certificate but a peer's.

    Raises:
        SSLCertVerificationError: it is not valid now.
    """
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusting.load_verify_locations(chain)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    server = shown.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_MAX_HANDSHAKE_STEPS):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    peer = client.getpeercert()
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str((peer or {})["notAfter"])), UTC)
