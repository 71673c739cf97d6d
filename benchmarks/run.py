"""What one run of the benchmarks was asked for."""

from dataclasses import dataclass
from pathlib import Path

from .server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The server, the size and the choice of figures."""

    server: Server
    only: frozenset[str]
    quick: bool
    rows: int
    repetitions: int
    peers: bool
    corpus: Path
    repositories: int
    work: Path
    keep: bool

    @property
    def size(self) -> int:
        """Targets in the table of figures 1 to 7."""
        return self.rows or (100_000 if self.quick else 1_000_000)
