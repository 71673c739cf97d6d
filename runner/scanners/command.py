"""Running a scanner's command: its folders, its environment, and what its end means."""

import os
import re
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .base import LimitHit, ScanFault, ScanInterrupted, ScanJob
from .identity import redact
from .limits import Ended, Limits, ProcessResult
from .process import Guard, read_tail

_TAIL_BYTES = 64 << 10
_MESSAGE_CHARACTERS = 600
_VERSION_LIMITS = Limits(seconds=60.0, memory_bytes=1 << 30, output_bytes=1 << 20, processes=64)
_NUMBER = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")

# What git of a scanner must never do in a folder that somebody else filled (reliability.md, 2 D).
_GIT_FORCED = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "protocol.allow": "never",
    "credential.helper": "",
    "safe.directory": "*",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A command that ended by itself with an exit code its adapter knows."""

    exit_code: int
    report: Path
    stdout: Path
    stderr: Path
    seconds: float


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a scanner: nothing of ours is inherited but PATH."""
    forced = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "NO_COLOR": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_CONFIG_COUNT": str(len(_GIT_FORCED)),
    }
    if sys.platform == "win32":
        forced["SYSTEMROOT"] = os.environ.get("SYSTEMROOT", "")
    for number, (key, value) in enumerate(_GIT_FORCED.items()):
        forced[f"GIT_CONFIG_KEY_{number}"] = key
        forced[f"GIT_CONFIG_VALUE_{number}"] = value
    return {**forced, **(extra or {})}


def execute(
    guard: Guard,
    job: ScanJob,
    argv: Sequence[str],
    *,
    name: str,
    exit_codes: Collection[int],
    extra: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Finished:
    """Run ``argv`` for ``job``; give the paths of what it wrote, or raise what its end means.

    Raises ``ScanInterrupted`` when the caller's event was set, ``LimitHit`` for a limit, ``ScanFault`` for a program
    that is missing, was killed, or ended with an exit code outside of ``exit_codes``.
    """
    home = job.work / "home"
    for folder in (home, home / "tmp", home / "cache"):
        folder.mkdir(mode=0o700, exist_ok=True)
    stdout, stderr = job.work / "stdout", job.work / "stderr"
    result = guard.run(
        argv,
        cwd=cwd or home,
        env=environment(home, extra),
        limits=job.limits,
        stdout=stdout,
        stderr=stderr,
        cancel=job.cancel,
        scratch=job.work,
    )
    _refuse_end(result, job, name=name, stderr=stderr)
    if result.exit_code not in exit_codes:
        msg = f"{name} ended with exit code {result.exit_code}: {said(stderr)}"
        raise ScanFault("scanner_exit", msg, exit_code=result.exit_code)
    return Finished(
        exit_code=result.exit_code, report=job.work / "report", stdout=stdout, stderr=stderr, seconds=result.seconds
    )


def _refuse_end(result: ProcessResult, job: ScanJob, *, name: str, stderr: Path) -> None:
    if result.ended is Ended.CANCELLED:
        msg = f"{name} was stopped: the claim is no longer ours, or the program ends"
        raise ScanInterrupted(msg)
    if result.limit is not None:
        msg = f"{name} was ended by its {result.limit} limit ({_limit_text(result.ended, job.limits)})"
        raise LimitHit(result.limit, msg, exit_code=result.exit_code)
    if result.ended is Ended.NOT_STARTED:
        raise ScanFault("scanner_missing", f"{name} could not be started: {result.error}")
    if result.ended is Ended.LOST:
        raise ScanFault("scanner_lost", f"{name} was ended because its guardian died: {result.error}")
    if result.exit_code < 0:
        msg = f"{name} was killed by signal {-result.exit_code} (out of memory on this machine?): {said(stderr)}"
        raise ScanFault("scanner_killed", msg, exit_code=result.exit_code)


def _limit_text(ended: Ended, limits: Limits) -> str:
    return {
        Ended.TIME: f"{limits.seconds:.0f} s",
        Ended.MEMORY: f"{limits.memory_bytes >> 20} MiB",
        Ended.PROCESSES: str(limits.processes),
        Ended.OUTPUT: f"{limits.output_bytes >> 20} MiB of output",
        Ended.FILE_SIZE: f"{limits.file_bytes >> 20} MiB a file",
        Ended.DISK: f"{limits.work_bytes >> 20} MiB on disk",
    }[ended]


def said(stderr: Path, secrets: Collection[bytes] = ()) -> str:
    """The end of what a scanner said, on one line, printable, without secrets."""
    return printable(read_tail(stderr, _TAIL_BYTES), secrets) or "it said nothing"


def printable(foreign: bytes, secrets: Collection[bytes] = ()) -> str:
    """The end of a foreign text on one line, printable, without secrets."""
    lines = foreign.decode("utf-8", "replace").splitlines()
    line = redact(" / ".join(part.strip() for part in lines if part.strip()), secrets)
    return "".join(c if c.isprintable() else "?" for c in line)[-_MESSAGE_CHARACTERS:]


def version_of(guard: Guard, argv: Sequence[str], *, name: str, cancel: threading.Event | None = None) -> str:
    """The version that a program prints: the first ``1.2`` or ``1.2.3`` in its output.

    Raises ``ScanFault``, and ``ScanInterrupted`` when ``cancel`` was set.
    """
    with guard.work_folder() as work:
        home = work / "home"
        (home / "tmp").mkdir(parents=True)
        stdout, stderr = work / "stdout", work / "stderr"
        result = guard.run(
            argv,
            cwd=home,
            env=environment(home),
            limits=_VERSION_LIMITS,
            stdout=stdout,
            stderr=stderr,
            cancel=cancel,
        )
        text = (read_tail(stdout, _TAIL_BYTES) + b"\n" + read_tail(stderr, _TAIL_BYTES)).decode("utf-8", "replace")
    if result.ended is Ended.CANCELLED:
        msg = f"{name} was stopped while it told its version"
        raise ScanInterrupted(msg)
    if result.ended is not Ended.EXIT or result.exit_code != 0:
        msg = f"{name}: {argv[0]} did not tell its version ({result.ended}, exit {result.exit_code}): {result.error}"
        raise ScanFault("scanner_missing", msg, exit_code=result.exit_code)
    found = _NUMBER.search(text)
    if found is None:
        msg = f"{name}: {argv[0]} printed no version number"
        raise ScanFault("scanner_version", msg)
    return found[0]


def require_version(version: str, *, name: str, minimum: tuple[int, ...], below: tuple[int, ...]) -> None:
    """Refuse a version that this adapter was not made for: its report may mean something else."""
    number = tuple(int(part) for part in version.split("."))
    if not minimum <= number < below:
        wanted = f"{'.'.join(map(str, minimum))} or newer, below {'.'.join(map(str, below))}"
        msg = f"{name} is version {version}; this adapter was made for {wanted}. Install that version"
        raise ScanFault("scanner_version", msg)
