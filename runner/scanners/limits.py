"""What one run may use, and how it ended."""

from dataclasses import dataclass
from enum import StrEnum


class Ended(StrEnum):
    """Why a run is over; a closed set. Everything but ``EXIT`` means that the work is not whole."""

    EXIT = "exit"  # it ended by itself, with whatever exit code
    TIME = "time"
    MEMORY = "memory"
    PROCESSES = "processes"
    OUTPUT = "output"  # stdout or stderr grew over its limit
    FILE_SIZE = "file_size"
    DISK = "disk"  # the private folder grew over its limit
    CANCELLED = "cancelled"  # the caller's event was set (lost lease, shutdown)
    NOT_STARTED = "not_started"  # no such program, no permission
    LOST = "lost"  # the guardian's keeper died; the run was ended, its result is not known


LIMITS_HIT = frozenset({Ended.TIME, Ended.MEMORY, Ended.PROCESSES, Ended.OUTPUT, Ended.FILE_SIZE, Ended.DISK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run may use. Bytes and seconds; the defaults are those of ``scan.*`` in the configuration.

    Memory is what is resident of all processes of the run together, looked at every 50 ms: an address space limit
    would break programs that reserve far more than they touch.
    """

    seconds: float = 1800.0
    memory_bytes: int = 2048 << 20
    processes: int = 256
    file_bytes: int = 2048 << 20  # of one file
    output_bytes: int = 64 << 20  # of stdout and of stderr, each
    work_bytes: int = 4096 << 20  # of everything in the private folder
    open_files: int = 4096
    grace_seconds: float = 0.25  # between SIGTERM and SIGKILL when time is up or the run is cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """How a run ended. ``exit_code`` is negative for a signal, as in ``subprocess``."""

    ended: Ended
    exit_code: int
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    peak_processes: int = 0
    stragglers: int = 0  # processes that were still there when it ended, and were killed
    left_behind: int = 0  # processes that even SIGKILL did not end in time
    error: str | None = None

    @property
    def limit(self) -> str | None:
        """The limit that was hit, as a word of the closed set, or None."""
        return self.ended.value if self.ended in LIMITS_HIT else None
