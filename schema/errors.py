"""The errors that cross rooms: each says what happened, and its caller can act on it."""


class ResweepError(Exception):
    """Root of everything that this product raises on purpose."""


class UsageFault(ResweepError):
    """What a person asked for cannot be understood; nothing was started (exit code 2)."""


class ConfigFault(UsageFault):
    """The configuration is wrong: names the key, where it was set, why, and what to write."""


class DatabaseUnavailable(ResweepError):
    """The database cannot be reached now; asking again later is right."""


class SchemaMismatch(ResweepError):
    """The database holds another schema than this program's (newer, edited, or not yet applied)."""


class LeaseLost(ResweepError):
    """The claim is no longer ours: its result must be thrown away (queue.md, "Claiming")."""

    def __init__(self, target_id: int, lease_token: int) -> None:
        """Keep which claim was lost."""
        super().__init__(f"the lease {lease_token} on target {target_id} is no longer held")
        self.target_id = target_id
        self.lease_token = lease_token


class CycleFenced(ResweepError):
    """The discovery cycle is no longer running: nothing of this step was written."""


class SourceFault(ResweepError):
    """The provider or the network failed, not the target: no attempt is counted.

    ``code`` comes from a closed set (``dns``, ``tls``, ``connect``, ``timeout``, ``server``, ``limited``,
    ``credential``, ``malformed``, ``unreadable``).
    """

    def __init__(self, code: str, message: str) -> None:
        """Keep the closed code beside the text."""
        super().__init__(message)
        self.code = code


class TargetFault(ResweepError):
    """This one target cannot be scanned; ``permanent`` says that trying again is useless.

    ``code`` comes from a closed set (see ``docs/failures.md``).
    """

    def __init__(self, code: str, message: str, *, permanent: bool = False) -> None:
        """Keep the closed code and whether a retry can help."""
        super().__init__(message)
        self.code = code
        self.permanent = permanent
