"""Give the ``findings`` commands what they need of a running configuration."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.metadata import version

import click

from ...queue.findings_reads import Origin
from ...schema.clock import Clock, SystemClock
from ...schema.database import Connection
from ..config import Configuration
from ..scanners.identity import load_key, repository_identity
from ..wiring import key_file, open_scanning
from .findings_frame import FindingsAccess
from .frame import configuration, opened
from .reveal import read_blob


def command_access() -> FindingsAccess:
    """Reach the database of this call's configuration; it stays open until the command ends."""
    settings = configuration()
    store = click.get_current_context().with_resource(opened(settings=settings))
    return findings_access(settings, store.database.transaction, clock=SystemClock())


def findings_access(
    settings: Configuration, transaction: Callable[[], AbstractContextManager[Connection]], *, clock: Clock
) -> FindingsAccess:
    """Wire the commands. The key and the checkout cache are touched only where secrets may be shown."""

    def blob_of(origin: Origin, blob: str) -> bytes:
        with open_scanning(settings, clock=clock) as scanning:
            return read_blob(scanning.cache, scanning.git, address=origin.address, kind=origin.kind, blob=blob)

    if not settings.settings.findings.allow_reveal:
        return FindingsAccess(transaction=transaction, now=clock.now, version=version("resweep"))
    key = load_key(key_file(settings))

    def identify(origin: Origin, rule: str, secret: bytes) -> bytes:
        return key.identify(repository_identity(origin.kind, origin.provider_id, origin.name), rule, secret)

    return FindingsAccess(
        transaction=transaction,
        now=clock.now,
        version=version("resweep"),
        allow_reveal=True,
        read_blob=blob_of,
        identify=identify,
    )
