"""Source ``git``: folders of repositories on this machine, single addresses, and lists of addresses.

The change signal is the digest of every advertised branch, tag and HEAD; git has no time of its own, so the queue
stamps a changed digest with the database's clock (queue.md, "Marks and snapshots"). Nothing is asked of a provider
beyond one ``ls-remote`` per address (T12); plain local repositories cost no program at all.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ..schema.clock import Clock
from ..schema.errors import SourceFault, TargetFault
from ..schema.records import Observation
from ..schema.text import display
from . import gitaddress, gitrefs
from .base import Access, Capabilities, Credential, EntryFault, Identity, Page, Probe, ProbeState, WalkLimits
from .gitcommand import GitCommand
from .gitfolders import FolderWalk
from .gitlists import read_list

CAPABILITIES = Capabilities(
    time_signal=False,
    revision=True,
    probe=True,
    complete_listing=True,
    identity=Identity.NAME,
    folds_case=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSelection:
    """What a git source covers. Paths are absolute; lists are files with one address a line."""

    paths: tuple[Path, ...] = ()
    addresses: tuple[str, ...] = ()  # canonical
    lists: tuple[Path, ...] = ()
    include: tuple[str, ...] = ()  # name patterns; none = everything
    exclude: tuple[str, ...] = ()

    def selects(self, name: str) -> bool:
        """Whether a name passes ``include`` and ``exclude``."""
        if self.include and not any(fnmatchcase(name, pattern) for pattern in self.include):
            return False
        return not any(fnmatchcase(name, pattern) for pattern in self.exclude)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A repository in scope whose refs are to be read."""

    address: str
    display_name: str
    git_dir: str | None  # of a local one
    closed: bool = False  # known to be unreadable: listed without a revision


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What reading the refs of a candidate gave."""

    candidate: _Candidate
    revision: bytes | None = None
    fault: EntryFault | None = None
    failure: SourceFault | None = None  # the network's or server's fault
    requests: int = 0


@dataclass(slots=True)
class _Walk:
    """One walk's page in the making, and what decides whether the walk was complete."""

    observations: list[Observation] = field(default_factory=list[Observation])
    not_listed: Counter[str] = field(default_factory=Counter[str])
    faults: list[EntryFault] = field(default_factory=list[EntryFault])
    requests: int = 0
    listed: set[str] = field(default_factory=set[str])
    complete: bool = True
    unreached: list[SourceFault] = field(default_factory=list[SourceFault])  # roots, lists that could not be read
    failures: list[SourceFault] = field(default_factory=list[SourceFault])  # addresses that could not be asked
    answers: int = 0

    def take_page(self, *, last: bool = False) -> Page:
        page = Page(
            observations=tuple(self.observations),
            # An emptied folder looks like one that is not mounted: nothing found is never complete.
            complete=last and self.complete and bool(self.listed),
            not_listed=dict(self.not_listed),
            faults=tuple(self.faults),
            requests=self.requests,
        )
        self.observations, self.faults, self.requests = [], [], 0
        self.not_listed = Counter()
        return page


class GitSource:
    """Repositories below folders, and repositories behind addresses."""

    def __init__(
        self,
        selection: GitSelection,
        *,
        git: GitCommand,
        clock: Clock,
        excluded: Sequence[Path] = (),
        credential: Callable[[str], Credential | None] | None = None,
        threads: int = 8,
    ) -> None:
        """``excluded``: folders never entered (``data_dir``, the checkout cache).

        ``credential`` gives what to show for a remote address; ``threads`` bounds the programs running at once.
        """
        self._selection = selection
        self._git = git
        self._clock = clock
        self._excluded = frozenset(os.path.realpath(path) for path in excluded)
        self._credential = credential
        self._threads = threads

    @property
    def kind(self) -> str:
        """``git``."""
        return "git"

    @property
    def capabilities(self) -> Capabilities:
        """Digests instead of times; complete listings; the name is the identity."""
        return CAPABILITIES

    def walk(self, limits: WalkLimits) -> Iterator[Page]:
        """Every repository in scope, in pages of ``limits.page_size`` or ``limits.page_seconds``.

        A repository whose refs cannot be read is listed without a revision and named in the page's faults: it is
        there. Raises ``SourceFault`` after the last page when a folder or list could not be read, or when no address
        could be asked; such a walk is never complete.
        """
        walk, pages = _Walk(), 0
        ends = self._clock.monotonic() + limits.page_seconds
        with ThreadPoolExecutor(self._threads, thread_name_prefix="git-source") as pool:
            answers = self._answers(walk, pool)
            for answer in answers:
                _record(answer, walk)
                if limits.max_results is not None and walk.answers >= limits.max_results:
                    walk.complete = False
                    answers.close()
                    break
                if len(walk.observations) >= limits.page_size or self._clock.monotonic() >= ends:
                    pages += 1
                    if limits.max_pages is not None and pages >= limits.max_pages:
                        walk.complete = False
                        answers.close()
                        break
                    yield walk.take_page()
                    ends = self._clock.monotonic() + limits.page_seconds
        yield walk.take_page(last=True)
        if walk.unreached:
            raise walk.unreached[0]
        if walk.failures and len(walk.failures) == walk.answers:
            raise walk.failures[0]

    def probe(self, name: str, address: str) -> Probe:
        """Ask for one repository. A local one is gone only while the folder it was listed under can be seen."""
        if gitaddress.is_local(address):
            path = gitaddress.local_path(address)
            if not os.path.lexists(path):
                roots = [root for root in self._selection.paths if os.path.isdir(root)]
                seen = any(Path(path).is_relative_to(os.path.realpath(root)) for root in roots)
                state = ProbeState.GONE if seen else ProbeState.UNKNOWN
                return Probe(state=state, detail=f"{display(path)} does not exist")
        try:
            refs = self._git.advertised(address, self.access(address))
        except TargetFault as fault:
            return Probe(state=ProbeState.UNKNOWN, detail=str(fault))
        observation = Observation(name=name, display_name=name, address=address, revision=refs.digest)
        return Probe(state=ProbeState.FOUND, observation=observation)

    def access(self, address: str) -> Access:
        """The one transport of the address, and the source's credential for remote ones."""
        credential = None
        if self._credential is not None and not gitaddress.is_local(address):
            credential = self._credential(address)
        return Access(protocols=gitaddress.protocols(address), credential=credential)

    def check(self) -> str:
        """Count what is listed and what cannot be read. Raises ``SourceFault`` when nothing can be."""
        found, faults = 0, 0
        for page in self.walk(WalkLimits()):
            found += len(page.observations)
            faults += len(page.faults)
        return f"{found} repositories, {faults} of them with problems" if faults else f"{found} repositories"

    def _answers(self, walk: _Walk, pool: ThreadPoolExecutor) -> Generator[_Answer, None, None]:
        """Read the refs of every candidate; programs run in the pool, a bounded number ahead of the reader."""
        waiting: deque[Future[_Answer]] = deque()
        try:
            for candidate in self._candidates(walk):
                if candidate.address in walk.listed:
                    walk.not_listed["duplicate"] += 1
                    continue
                if not self._selection.selects(candidate.display_name):
                    walk.not_listed["not_selected"] += 1
                    continue
                walk.listed.add(candidate.address)
                plain = None
                if candidate.git_dir is not None and not candidate.closed:
                    plain = gitrefs.read_plain(Path(candidate.git_dir))
                if candidate.closed or plain is not None:
                    yield _Answer(candidate=candidate, revision=plain.digest if plain else None)
                    continue
                waiting.append(pool.submit(self._ask, candidate))
                if len(waiting) >= 2 * self._threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _ask(self, candidate: _Candidate) -> _Answer:
        try:
            refs = self._git.ls_remote(candidate.address, self.access(candidate.address))
        except TargetFault as fault:
            entry = EntryFault(entry=candidate.display_name, code=fault.code, message=str(fault))
            return _Answer(candidate=candidate, fault=entry, requests=1)
        except SourceFault as fault:
            entry = EntryFault(entry=candidate.display_name, code=fault.code, message=str(fault))
            return _Answer(candidate=candidate, fault=entry, failure=fault, requests=1)
        return _Answer(candidate=candidate, revision=refs.digest, requests=1)

    def _candidates(self, walk: _Walk) -> Iterator[_Candidate]:
        for path in self._selection.paths:
            yield from self._below(os.path.realpath(path), walk)
        for address in self._selection.addresses:
            yield _Candidate(address=address, display_name=gitaddress.parse_remote(address).display_name, git_dir=None)
        for file in self._selection.lists:
            yield from self._in_list(file, walk)

    def _below(self, root: str, walk: _Walk) -> Iterator[_Candidate]:
        folders = FolderWalk(root=root, excluded=self._excluded)
        try:
            for found in folders.find():
                closed = bool(folders.faults) and folders.faults[-1].entry == found.path
                yield _Candidate(
                    address=gitaddress.local_address(found.path),
                    display_name=_name_below(root, found.path),
                    git_dir=found.git_dir,
                    closed=closed,
                )
                folders.hand_over(walk.not_listed, walk.faults)
        except SourceFault as fault:
            walk.unreached.append(fault)
            walk.complete = False
        folders.hand_over(walk.not_listed, walk.faults)
        walk.complete = walk.complete and folders.complete

    def _in_list(self, file: Path, walk: _Walk) -> Iterator[_Candidate]:
        try:
            read = read_list(file)
        except SourceFault as fault:
            walk.unreached.append(fault)
            walk.complete = False
            return
        if read.faults:
            # A line that cannot be read may be the misspelt address of a known target: nothing is missing for sure.
            walk.complete = False
            walk.faults.extend(read.faults)
        for address in read.addresses:
            if gitaddress.is_local(address):
                name = display(os.path.basename(gitaddress.local_path(address)))
            else:
                name = gitaddress.parse_remote(address).display_name
            yield _Candidate(address=address, display_name=name, git_dir=None)


def _record(answer: _Answer, walk: _Walk) -> None:
    walk.answers += 1
    walk.requests += answer.requests
    if answer.fault is not None:
        walk.faults.append(answer.fault)
    if answer.failure is not None:
        walk.failures.append(answer.failure)
    walk.observations.append(
        Observation(
            name=answer.candidate.address,
            display_name=answer.candidate.display_name,
            address=answer.candidate.address,
            revision=answer.revision,
        )
    )


def _name_below(root: str, path: str) -> str:
    """A short name for people: the path below the folder that was named, or that folder's own name."""
    relative = os.path.relpath(path, root)
    return display(os.path.basename(root) or root) if relative == "." else display(relative)
