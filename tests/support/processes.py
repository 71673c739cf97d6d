"""Real parts for scanner tests: repositories made by git, tokens that scanners know, processes that can be watched."""

import contextlib
import os
import random
import string
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from resweep.runner.scanners.checkout import CheckoutCache, Repository
from resweep.runner.scanners.checkout_tree import TreeLimits
from resweep.runner.scanners.identity import FindingsKey
from resweep.runner.scanners.kingfisher import Kingfisher, KingfisherSettings
from resweep.runner.scanners.limits import Limits
from resweep.runner.scanners.process import Guard
from resweep.runner.scanners.scan import ScanContext
from resweep.schema.clock import SystemClock
from resweep.schema.records import Admission, Claim
from resweep.sources.gitcommand import GitCommand

# Compiling kingfisher's rules takes ten seconds; they are shared by all test runs of this user.
RULE_CACHE = Path(tempfile.gettempdir()) / f"resweep-tests-{os.getuid()}" / "rules"

_GIT_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05+0000",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05+0000",
    "LC_ALL": "C",
}


def token(seed: int) -> str:
    """A made-up GitHub token: of the right shape, never one that was given out."""
    chooser = random.Random(f"resweep test token {seed}")
    return "ghp_" + "".join(chooser.choice(string.ascii_letters + string.digits) for _ in range(36))


def token_line(seed: int) -> str:
    """A line of a file with that token in it."""
    return f'GITHUB_TOKEN="{token(seed)}"\n'


def git(folder: Path, *arguments: str, stdin: bytes | None = None) -> str:
    """Run git in ``folder``, give its output without the last line end."""
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder,
        env=_GIT_ENVIRONMENT,
        input=stdin,
        check=True,
        capture_output=True,
    )
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def new_repository(folder: Path, *options: str) -> Path:
    """An empty repository with the branch main."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main", *options)
    return folder


def commit(folder: Path, files: Mapping[str, str | bytes | None], message: str = "change") -> str:
    """Write (or with None remove) files and commit everything; give the commit's id."""
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def claim_of(address: str, *, name: str = "a/repository", provider_id: str | None = None) -> Claim:
    """A claim on ``address`` as the queue would give it."""
    now = datetime(2026, 1, 2, tzinfo=UTC)
    return Claim(
        target_id=1,
        lease_token=1,
        source="test",
        kind="git",
        name=name,
        display_name=name,
        address=address,
        provider_id=provider_id,
        attributes={},
        admission=Admission.NEW,
        attempts=1,
        scan_remote_modified_at=None,
        scan_started_at=now,
        scan_request_no=0,
        observed_revision=None,
        lease_expires_at=now + timedelta(minutes=1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything a scan needs, below one folder."""

    guard: Guard
    cache: CheckoutCache
    context: ScanContext[Repository]
    folder: Path


@contextlib.contextmanager
def bench(
    folder: Path,
    *,
    limits: Limits | None = None,
    max_blob_bytes: int | None = None,
    tree_limits: TreeLimits | None = None,
) -> Generator[Bench, None, None]:
    """Wire the real parts; the guard is closed at the end."""
    with Guard(folder / "runs") as guard:
        runner = guard.command_runner()
        command = GitCommand.prepare(folder / "git", runner)
        cache = CheckoutCache(
            folder / "checkouts",
            git=command,
            clock=SystemClock(),
            limit_bytes=1 << 30,
            max_blob_bytes=max_blob_bytes,
            tree_limits=tree_limits,
        )
        context = ScanContext(
            guard=guard,
            git=command,
            checkouts=cache,
            key=FindingsKey(b"k" * 32),
            clock=SystemClock(),
            limits=limits or Limits(seconds=60.0),
        )
        yield Bench(guard=guard, cache=cache, context=context, folder=folder)


def kingfisher() -> Kingfisher:
    """The real scanner on the shared rule cache."""
    return Kingfisher(KingfisherSettings(rule_cache=RULE_CACHE))


def processes_with(text: str) -> list[int]:
    """Living processes whose command line or environment holds ``text`` (zombies have neither)."""
    wanted = text.encode()
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                seen = Path(f"/proc/{name}/cmdline").read_bytes() + Path(f"/proc/{name}/environ").read_bytes()
                if wanted in seen:
                    found.append(int(name))
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Poll until ``condition`` holds; False when it did not in time."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
