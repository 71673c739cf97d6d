"""detect-secrets over a written checkout.

It asks git which files there are, and git runs what the repository's configuration names (``core.fsmonitor`` of a
foreign ``.git/config`` was executed: reliability.md, section 7). So it is only ever pointed at a folder that we wrote
ourselves, without ``.git``, with ``--all-files``, which keeps it from asking. Its exit code is 0 with findings and
without; its report names a hash of each secret only, so the secret is read from the file at the place that the report
names.
"""

import hashlib
import importlib.util
import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from . import severity
from .base import Needs, RawFinding, Reading, ScanFault, ScanJob
from .command import execute, require_version, version_of
from .process import Guard

MINIMUM_VERSION = (1, 5, 0)
BELOW_VERSION = (2,)

_REPORT_LIMIT_BYTES = 64 << 20
_FILE_LIMIT_BYTES = 64 << 20
_LINE_LIMIT_BYTES = 1 << 20
# Its own inline marks hide a finding; ours are recorded beside it (ignore.py), and cover theirs.
_OWN_MARKS = "detect_secrets.filters.allowlist.is_line_allowlisted"
_KEY_LINES = 200
_GITHUB_TOKEN = re.compile(r"gh[pousr]_[A-Za-z0-9]{36,}")
_PARTS = tuple(
    re.compile(pattern)
    for pattern in (
        r"[^\s\"'`]+",
        r"[A-Za-z0-9+/=_.-]+",
        r"[A-Za-z0-9+/=_-]+",
        r"[^\s\"'`=:,;()\[\]{}<>@]+",
        r"\"([^\"]*)\"",
        r"'([^']*)'",
        r"`([^`]*)`",
        r"://[^:/@\s]*:([^@\s]+)@",
        r"[=:]\s*(.+)$",
    )
)
_ERROR_MARKS = (b"Traceback (most recent call last)", b"[ERROR]")


class DetectSecrets:
    """The adapter; one per process, used by all its threads. It has no rules to install and no cache."""

    needs = Needs.CHECKOUT
    incremental = False
    proves_work = True
    blob_bytes = None

    def __init__(self, name: str = "detect-secrets", python: str = sys.executable) -> None:
        """``python`` is the interpreter that has the package."""
        self._name = name
        self._python = python
        self._version: str | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    def leaves_out(self, path: bytes) -> bool:
        """Not known, so never said."""
        del path
        return False

    def prepare(self, guard: Guard, *, cancel: threading.Event | None = None) -> None:
        """Check that the package is there and of a version that this adapter knows."""
        with self._lock:
            if self._version is None:
                if self._python == sys.executable and importlib.util.find_spec("detect_secrets") is None:
                    msg = f"{self.name}: the package detect-secrets is not installed; pip install 'detect-secrets>=1.5'"
                    raise ScanFault("scanner_missing", msg)
                version = version_of(guard, [*self._command, "--version"], name=self.name, cancel=cancel)
                require_version(version, name=self.name, minimum=MINIMUM_VERSION, below=BELOW_VERSION)
                self._version = version

    def fingerprint(self) -> bytes:
        """SHA-256 over version and settings; its plugins come with the version."""
        return hashlib.sha256(f"detect-secrets\0{self._version}\0--all-files --no-verify".encode()).digest()

    def scan(self, guard: Guard, job: ScanJob) -> Reading:
        """Scan the checkout. Raises ``ScanFault`` when it is no folder that is safe for this scanner."""
        if job.checkout is None or os.path.lexists(job.checkout / ".git"):
            msg = (
                f"{self.name} is pointed at written checkouts without .git only: it runs git, which runs what .git says"
            )
            raise ScanFault("scanner_checkout", msg)
        argv = [*self._command, "-c", "1", "scan", "--all-files", "--no-verify", "--disable-filter", _OWN_MARKS, "."]
        finished = execute(guard, job, argv, name=self.name, exit_codes={0}, cwd=job.checkout)
        log = finished.stderr.read_bytes()[:_REPORT_LIMIT_BYTES]
        if any(mark in log for mark in _ERROR_MARKS):
            msg = f"{self.name} logged an error: {log[-400:].decode('utf-8', 'replace')!r}"
            raise ScanFault("scanner_error", msg)
        files, size = _count(job.checkout)
        findings = tuple(_findings(_load(finished.stdout, self.name), job.checkout))
        return Reading(findings=findings, blobs=files, bytes_read=size, seconds=finished.seconds)

    @property
    def _command(self) -> list[str]:
        # -P: the folder being scanned is the working folder, and must not be imported from.
        return [self._python, "-P", "-m", "detect_secrets"]


def _load(path: Path, name: str) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > _REPORT_LIMIT_BYTES:
            msg = f"{name}: its report is larger than {_REPORT_LIMIT_BYTES >> 20} MiB"
            raise ScanFault("scanner_report", msg)
        results = json.loads(path.read_bytes())["results"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        msg = f"{name}: its report cannot be read: {type(error).__name__}"
        raise ScanFault("scanner_report", msg) from error
    if not isinstance(results, dict):
        msg = f"{name}: its report has no results"
        raise ScanFault("scanner_report", msg)
    return cast("Mapping[str, Any]", results)


def _count(checkout: Path) -> tuple[int, int]:
    files = size = 0
    for folder, _, names in os.walk(checkout):
        for file in names:
            files += 1
            size += (Path(folder) / file).lstat().st_size
    return files, size


def _findings(results: Mapping[str, Any], checkout: Path) -> Iterator[RawFinding]:
    for name, items in results.items():
        path = os.path.normpath(name)
        lines = _read_lines(checkout, path)
        for item in items:
            line, kind = int(item["line_number"]), str(item["type"])
            secret, column = _secret(lines[line - 1 :], kind, str(item["hashed_secret"])) if line > 0 else (b"", None)
            yield RawFinding(
                rule=f"detect-secrets.{kind}",
                rule_name=kind,
                severity=severity.of_secret(kind, "medium"),
                confidence="",
                secret=secret,
                path=os.fsencode(path),
                line=line or None,
                column=column,
            )


def _read_lines(checkout: Path, path: str) -> list[bytes]:
    """Lines of a file below the checkout; none for a path that leaves it or leads over a link."""
    target = checkout / path
    if path.startswith("..") or Path(path).is_absolute() or target.resolve() != checkout.resolve() / path:
        return []
    try:
        handle = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(handle, "rb") as file:
        return file.read(_FILE_LIMIT_BYTES).splitlines()


def _secret(lines: list[bytes], kind: str, sha1: str) -> tuple[bytes, int | None]:
    """The secret that a finding means, read from its line on, and its column.

    The report holds a SHA-1. The plugins cut secrets at quotes, spaces and signs of assignment; every such part is
    tried. Two plugins hash what all their findings share (``ghp``, ``BEGIN PRIVATE KEY``): there the token or the
    whole key is taken, or all of them would be one finding. Where nothing fits, the line is the secret.
    """
    line = lines[0][:_LINE_LIMIT_BYTES] if lines else b""
    text = line.decode("utf-8", "replace")
    if kind == "GitHub Token" and (token := _GITHUB_TOKEN.search(text)):
        return token[0].encode(), token.start() + 1
    if kind == "Private Key":
        end = next((n for n, part in enumerate(lines[:_KEY_LINES]) if b"-----END" in part), 0)
        return b"\n".join(lines[: end + 1]) or sha1.encode(), 1
    for part in _parts(text):
        if hashlib.sha1(part.encode(), usedforsecurity=False).hexdigest() == sha1:
            return part.encode(), text.find(part) + 1
    return line.strip() or sha1.encode(), None


def _parts(text: str) -> Iterator[str]:
    yield text.strip()
    for pattern in _PARTS:
        for match in pattern.finditer(text):
            part = match[match.lastindex or 0]
            yield part
            yield part.strip()
            yield part.rstrip(",;.")
