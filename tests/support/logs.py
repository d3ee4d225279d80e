"""What logging is configured to is the process's, and other tests run in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

TALKATIVE = ("azure", "boto3", "botocore", "google", "msal", "pyiceberg", "sqlalchemy", "urllib3")
SERVERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "aiohttp")


@contextmanager
def as_before() -> Iterator[None]:
    """Give back in the end what a block configures."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # Google's library sees to it that its own records go nowhere, where it is used before anybody configured them.
    logging.getLogger("google").propagate = True
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        root.handlers, root.level = handlers, level
        for name in SERVERS:
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate, logger.disabled = [], True, False
        for name in (*TALKATIVE, "thrift"):
            logging.getLogger(name).setLevel(logging.NOTSET)
        structlog.reset_defaults()
