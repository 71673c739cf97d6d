"""Whether this process leads: one of all runtimes on a database runs the passes of configured sources.

Sources named on the command line are discovered by whoever named them: nobody else knows of them. A cycle's own lock
keeps two processes off one source in every case; leading only saves the tries.
"""

import threading
from contextlib import suppress

from ..ledger import authority, server
from ..schema.database import Connection, Database, first_line, retryable
from .events import Listener, Noted

_EVERY_SECONDS = 5.0


class Authority:
    """Tries to lead, and notices when the lead is lost with its connection."""

    def __init__(self, database: Database, *, tell: Listener, stopping: threading.Event) -> None:
        """Nothing is asked before ``start``."""
        self._database = database
        self._tell = tell
        self._stopping = stopping
        self._direct: Connection | None = None
        self._leading = False
        self._said: bool | None = None
        self._thread = threading.Thread(target=self._run, name="authority", daemon=True)

    @property
    def leading(self) -> bool:
        """Whether this process leads now."""
        return self._leading

    def start(self) -> None:
        """Try once, then go on trying beside everything else."""
        self.run_once()
        self._thread.start()

    def run_once(self) -> bool:
        """One look: take the lead, or prove that it is still ours."""
        try:
            if self._direct is None or self._direct.closed:
                self._leading = False
                self._direct = self._database.direct()
            if self._leading:
                server.moment(self._direct)
            else:
                self._leading = authority.try_lead(self._direct)
        except Exception as error:
            if not retryable(error):
                raise
            self._leading = False
            self.close()
            if self._said is not None:
                self._tell(Noted(level="warning", code="lead_lost", message=f"the lead is lost: {first_line(error)}"))
            self._said = None
            return False
        if self._said is not self._leading:
            self._said = self._leading
            self._say()
        return self._leading

    def _say(self) -> None:
        if self._leading:
            self._tell(Noted(level="info", code="leading", message="this runtime leads: it runs the passes"))
            return
        with self._database.connection() as conn:
            other = authority.leader(conn)
        who = f"{other.name} leads since {other.since:%Y-%m-%d %H:%M:%S}" if other else "another runtime leads"
        self._tell(Noted(level="info", code="standby", message=f"standby: {who}; this one scans, and takes over"))

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_SECONDS):
            with suppress(Exception):  # said once in run_once; the next look tries again
                self.run_once()
        self.close()

    def close(self) -> None:
        """Give the lead up."""
        self._leading = False
        direct, self._direct = self._direct, None
        if direct is not None:
            with suppress(Exception):
                direct.close()
