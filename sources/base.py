"""The seam between a provider and the rest: the ``Source`` protocol, its pages, and how it may start programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from ..schema.records import Observation

_NONE_COUNTED: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How one program ended. ``stdout`` and ``stderr`` are bytes as written, cut at the caller's limit."""

    exit_code: int  # negative: killed by that signal
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False  # more than ``output_limit_bytes`` was written to one of the streams


class CommandRunner(Protocol):
    """Starts one program, waits for it, and leaves nothing of it behind.

    The runner floor hands in a guarded implementation (own session, limits, killed with everything it started
    when time is up or the worker dies). No adapter starts a program in another way.
    """

    def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        seconds: float,
        output_limit_bytes: int,
        stdin: bytes | None = None,
    ) -> CommandResult:
        """Run ``argv`` in ``cwd`` with exactly ``env``; ``seconds`` is wall time, the output limit holds per stream."""
        ...


class Identity(StrEnum):
    """What stays the same when a target's name changes."""

    NAME = "name"  # nothing: another name is another target
    PROVIDER_ID = "provider_id"
    DIGEST = "digest"  # the content itself (T06)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a kind of source can do; the cycle asks these facts and never the kind's name."""

    time_signal: bool  # pages carry the provider's own modification time
    revision: bool  # pages carry an opaque content identity, compared for equality
    probe: bool  # one target can be asked for by itself
    complete_listing: bool  # a complete walk names every target, so absence means something
    identity: Identity
    folds_case: bool  # names are compared case-folded
    blind_window: timedelta = timedelta(0)  # changes inside it may share one modification time
    per_page_requests: bool = True  # a page costs requests (T12)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFault:
    """One entry of a listing that could not be read as it should be; the walk goes on.

    ``code`` is from a closed set: ``broken``, ``unreadable``, ``malformed``, ``duplicate``, ``refused``, or a code of
    ``SourceFault``.
    """

    entry: str  # what it was, for people: a path, an address, ``FILE:LINE``
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One step of a walk. Only the last page may be ``complete``; a walk without such a page was partial.

    A partial walk never removes anything (queue.md, "Removal, by capability").
    """

    observations: tuple[Observation, ...] = ()
    complete: bool = False  # this page ends a walk that saw everything in scope
    not_listed: Mapping[str, int] = field(default_factory=lambda: _NONE_COUNTED)  # left out on purpose, by reason
    faults: tuple[EntryFault, ...] = ()
    requests: int = 0  # requests (or programs) this page cost
    not_modified: int = 0  # entries or pages answered as "same as before"


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkLimits:
    """Hard bounds of a walk. When one is hit the walk ends and is not complete."""

    page_size: int = 500  # observations a page
    max_pages: int | None = None
    max_results: int | None = None
    page_seconds: float = 5.0  # a page is handed over after this time at the latest, as far as it got


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What a worker shows to reach a target. Never in an address, argv, a log or a configuration file."""

    username: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a worker may reach a target's address (rulings.md 16)."""

    protocols: frozenset[str]  # git's names: file, https, http, ssh, git
    credential: Credential | None = None


class ProbeState(StrEnum):
    """What a probe of one target said."""

    FOUND = "found"
    GONE = "gone"
    UNKNOWN = "unknown"  # it could not be told now; never a reason to remove anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The answer to a question about one target; ``observation`` is set when it was found."""

    state: ProbeState
    observation: Observation | None = None
    detail: str = ""


class Source(Protocol):
    """A provider of targets. It returns facts; it writes nothing and counts nothing itself."""

    @property
    def kind(self) -> str:
        """The kind's canonical name, as in specs (``git``, ``github``, …)."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this source can do."""
        ...

    def walk(self, limits: WalkLimits) -> Iterator[Page]:
        """Every target in scope, page by page.

        Raises ``SourceFault`` when the provider cannot be asked at all; pages given before stay valid.
        """
        ...

    def probe(self, name: str, address: str) -> Probe:
        """Ask for one target. Raises ``SourceFault`` when the provider cannot be asked."""
        ...

    def access(self, address: str) -> Access:
        """The protocols and the credential for one address. Raises ``TargetFault`` when it may not be reached."""
        ...

    def check(self) -> str:
        """One sentence on what is reachable, for ``sources check``. Raises ``SourceFault`` with what to do."""
        ...
