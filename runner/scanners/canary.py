"""The canary: a repository with a secret made up at the start, which every scanner must find before it may be used.

Scanners lie by being quiet: one of them read nothing after a security fix and called everything clean (reliability.md,
2 C 83). A scanner that misses the canary is refused with the reason.
"""

import secrets
import string
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...schema.clock import Clock
from ...schema.errors import SourceFault
from ...sources.gitcommand import GitCommand
from .base import Needs, ScanFault, ScanJob, Scanner
from .identity import redact
from .limits import Limits
from .process import Guard

FILE = "settings.env"
_LIMITS = Limits(seconds=300.0)
_LETTERS = string.ascii_letters + string.digits
_WHO = {
    "GIT_AUTHOR_NAME": "canary",
    "GIT_AUTHOR_EMAIL": "canary@localhost",
    "GIT_COMMITTER_NAME": "canary",
    "GIT_COMMITTER_EMAIL": "canary@localhost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryResult:
    """Whether a scanner may be used. ``fault`` says why not, in words for an operator."""

    scanner: str
    seconds: float
    fault: ScanFault | None


def check(
    scanners: Sequence[Scanner], *, guard: Guard, git: GitCommand, clock: Clock, cancel: threading.Event | None = None
) -> tuple[CanaryResult, ...]:
    """Let each scanner prepare and scan the canary.

    Raises ``SourceFault`` when git can't make the repository, ``ScanInterrupted`` soon after ``cancel`` is set: a
    first start compiles rules for half a minute, and nobody who ends the program waits for that.
    """
    token = "ghp_" + "".join(secrets.choice(_LETTERS) for _ in range(36))
    content = f'# made up by resweep to test its scanners\nGITHUB_TOKEN="{token}"\n'.encode()
    with guard.work_folder() as folder:
        repository, checkout = folder / "repository.git", folder / "tree"
        _make_repository(git, repository, content)
        checkout.mkdir()
        (checkout / FILE).write_bytes(content)
        return tuple(
            _check_one(scanner, repository, checkout, token=token.encode(), guard=guard, clock=clock, cancel=cancel)
            for scanner in scanners
        )


def _check_one(
    scanner: Scanner,
    repository: Path,
    checkout: Path,
    *,
    token: bytes,
    guard: Guard,
    clock: Clock,
    cancel: threading.Event | None,
) -> CanaryResult:
    started = clock.monotonic()
    fault: ScanFault | None = None
    try:
        scanner.prepare(guard, cancel=cancel)
        with guard.work_folder() as work:
            job = ScanJob(
                repository=repository,
                checkout=checkout if scanner.needs is Needs.CHECKOUT else None,
                since=None,
                work=work,
                limits=_LIMITS,
                cancel=cancel,
            )
            reading = scanner.scan(guard, job)
        # Some tools cut their secret differently: the file and a part of the token are enough.
        found = [raw for raw in reading.findings if raw.path == FILE.encode()]
        if not any(token[4:] in raw.secret or raw.secret in token for raw in found):
            msg = (
                f"{scanner.name} did not find the secret that was put into a test repository "
                f"({len(reading.findings)} findings, exit code {reading.exit_code}): it is not used. "
                "Check its version, its rules and its command"
            )
            fault = ScanFault("scanner_canary", msg, exit_code=reading.exit_code)
    except ScanFault as error:
        fault = ScanFault(error.code, redact(str(error), [token]), exit_code=error.exit_code)
    return CanaryResult(scanner=scanner.name, seconds=clock.monotonic() - started, fault=fault)


def _make_repository(git: GitCommand, path: Path, content: bytes) -> None:
    _git(git, None, ["init", "--quiet", "--bare", str(path)])
    blob = _git(git, path, ["hash-object", "-w", "--stdin"], stdin=content)
    tree = _git(git, path, ["mktree"], stdin=f"100644 blob {blob}\t{FILE}\n".encode())
    commit = _git(git, path, ["commit-tree", "-m", "canary", tree])
    _git(git, path, ["update-ref", "refs/heads/main", commit])
    _git(git, path, ["symbolic-ref", "HEAD", "refs/heads/main"])


def _git(git: GitCommand, path: Path | None, arguments: Sequence[str], stdin: bytes | None = None) -> str:
    result = git.run(arguments, git_dir=path, stdin=stdin, extra=_WHO)
    if result.exit_code != 0:
        said = result.stderr.decode("utf-8", "replace").strip()[-300:]
        msg = f"git {arguments[0]} failed while the scanners' test repository was made: {said}"
        raise SourceFault("unreadable", msg)
    return result.stdout.decode("ascii").strip()
