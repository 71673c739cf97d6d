"""kingfisher over a bare repository: the default scanner.

Measured on 2.14.0, and what follows from it here:

* Exit codes 0 (clean), 200 (findings), 205 (validated findings). A repository that it cannot open (SHA-256 object ids)
  or list is exit 0 with an ``ERROR`` line and ``"status": "partial"``: both fail the scan.
* An object that is missing or broken is skipped without a word (a ``DEBUG`` line; but ``-v`` also writes one for each
  small blob of each tree of each commit: hundreds of megabytes on a large repository). Archives, images, fonts and
  some lock files are left out without a word as well. So a scan that read nothing is asked once more, with ``-v``,
  how many blobs it found.
* A whole scan leaves blobs under 20 bytes out, and those over ``--max-file-size`` (256 MB).
* Without ``--since-commit`` it also reads the files of the bare folder itself (hooks, packs, ``packed-refs``) and
  counts them as blobs. They are ours, not the target's: they are taken off the number that proves work, and a finding
  in one is dropped. A blob that no commit names is reported by the path of its loose object.
* With ``--since-commit`` (once, any number of parents) only what is reachable from refs and not from there is read.
* Columns count from 0. Summary counts are not trusted.
* The first start compiles its rules for 10 to 20 seconds; the cache is warmed once per machine, then read only.
"""

import functools
import hashlib
import importlib
import json
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from . import severity
from .base import Needs, RawFinding, Reading, ScanFault, ScanJob
from .command import Finished, execute, printable, require_version, said, version_of
from .leftovers import locked
from .limits import Limits
from .process import Guard

MINIMUM_VERSION = (2, 14, 0)
BELOW_VERSION = (3,)
EXIT_CODES = frozenset({0, 200, 205})
# What the findings depend on; equal for us and for whoever compares with the bare command.
SETTINGS = ("--no-update-check", "--no-validate", "--no-dedup", "--no-extract-archives", "--no-ignore")

_SETTING_TEXT = "history=full confidence=medium max-file-size=256"
_REPORT_LIMIT_BYTES = 256 << 20
_LOG_LIMIT_BYTES = 64 << 20
_INDEXED = re.compile(rb"Indexed \d+ objects in \S+; (\d+) blobs; \d+ commits")
# Measured with one secret under 1,624 file names.
_LEFT_OUT = re.compile(
    rb"(?:\A|/)(?:pipfile\.lock|go\.mod|go\.sum|gradle\.lockfile|npm-shrinkwrap\.json|package-lock\.json|pnpm-lock\.yaml|"
    rb"poetry\.lock|yarn\.lock)\Z|\.(?:aab|apk|asar|bmp|bz2|docx|ear|egg|eot|epub|gem|gif|gz|hwp|ipa|jar|jnlp|jpeg|jpg|"
    rb"key|kmz|numbers|nupkg|odf|odg|odp|ods|odt|otf|pages|png|pptx|svg|tar|tgz|tif|tiff|ttf|war|woff|woff2|xlsx|xpi|xz|"
    rb"zip)\Z",
    re.IGNORECASE,
)
_ERROR_LINE = re.compile(rb"^\s*(?:\S+\s+)?ERROR\s", re.MULTILINE)
_LOOSE_OBJECT = re.compile(r"(?:\A|/)objects/([0-9a-f]{2})/([0-9a-f]{38})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class KingfisherSettings:
    """What an operator may choose. ``rules`` are files or folders of further rules."""

    name: str = "kingfisher"
    program: str | None = None  # None: the binary of the kingfisher-bin wheel
    rule_cache: Path
    jobs: int = 1  # threads of one scan; scans run beside each other already
    rules: tuple[Path, ...] = ()


class Kingfisher:
    """The adapter; one per process, used by all its threads."""

    needs = Needs.REPOSITORY
    incremental = True
    proves_work = True
    blob_bytes = range(20, (256 << 20) + 1)  # of the blobs that a whole scan reads

    def __init__(self, settings: KingfisherSettings) -> None:
        """Keep the settings; nothing is started before ``prepare``."""
        self._settings = settings
        self._version: str | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The configured name."""
        return self._settings.name

    def leaves_out(self, path: bytes) -> bool:
        """Whether it reads no file of that name, whatever is in it."""
        return _LEFT_OUT.search(path) is not None

    def prepare(self, guard: Guard, *, cancel: threading.Event | None = None) -> None:
        """Check the version and warm the rule cache, by one process at a time on this machine."""
        with self._lock:
            if self._version is not None:
                return
            version = version_of(guard, [self._program, "--version"], name=self.name, cancel=cancel)
            require_version(version, name=self.name, minimum=MINIMUM_VERSION, below=BELOW_VERSION)
            self._warm(guard, version, cancel)
            self._version = version

    def fingerprint(self) -> bytes:
        """SHA-256 over version, settings, and the content of further rules."""
        state = hashlib.sha256(f"kingfisher\0{self._version}\0{SETTINGS}\0{_SETTING_TEXT}".encode())
        for root in self._settings.rules:
            for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
                if path.is_file():
                    state.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
        return state.digest()

    def scan(self, guard: Guard, job: ScanJob) -> Reading:
        """Read the whole repository, or what is new since ``job.since``."""
        if self._version is None:
            self.prepare(guard, cancel=job.cancel)
        beside = _files_beside(job.repository) if job.since is None else _Beside()
        argv = self._argv(job.repository, job.work / "report", job.since)
        finished = execute(guard, job, argv, name=self.name, exit_codes=EXIT_CODES)
        reading = read(finished, beside=beside, name=self.name)
        if job.since is None and reading.blobs == 0:
            finished = execute(guard, job, [*argv, "-v"], name=self.name, exit_codes=EXIT_CODES)
            found = _INDEXED.search(finished.stderr.read_bytes()[:_LOG_LIMIT_BYTES])
            return replace(reading, blobs_found=int(found[1]) if found else 0)
        return reading

    @functools.cached_property
    def _program(self) -> str:
        if self._settings.program:
            return self._settings.program
        try:
            wheel: Any = importlib.import_module("kingfisher")  # the wheel's package, named like this file
            return str(wheel.get_binary_path())
        except (ImportError, FileNotFoundError) as error:
            msg = f"{self.name}: the program was not found ({error}); install kingfisher-bin 2.14 or set its command"
            raise ScanFault("scanner_missing", msg) from error

    def _argv(self, repository: Path, report: Path, since: str | None) -> list[str]:
        argv = [self._program, "scan", str(repository), "--format", "json", "-o", str(report), *SETTINGS]
        argv += ["--rule-cache-dir", str(self._settings.rule_cache), "-j", str(self._settings.jobs)]
        argv += ["--git-repo-timeout", "0"]  # the guardian keeps the time
        for path in self._settings.rules:
            argv += ["--rules-path", str(path)]
        return argv if since is None else [*argv, "--since-commit", since]

    def _warm(self, guard: Guard, version: str, cancel: threading.Event | None) -> None:
        """Compile the rules once per machine, version and rule set, then take the right to write away."""
        cache = self._settings.rule_cache
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        stamp = hashlib.sha256(f"{version}\0{self.fingerprint().hex()}\0{self._program}".encode()).hexdigest()[:32]
        with locked(cache.with_name(f"{cache.name}.lock")):
            done = cache.with_name(f"{cache.name}.warm")
            if done.exists() and done.read_text("utf-8") == stamp and any(cache.glob("*.vscdb")):
                return
            cache.chmod(0o700)
            with guard.work_folder() as work:
                empty = work / "empty"
                empty.mkdir()
                (empty / "file").write_text("nothing\n", "utf-8")
                job = ScanJob(
                    repository=empty,
                    checkout=None,
                    since=None,
                    work=work,
                    limits=Limits(seconds=300.0),
                    cancel=cancel,
                )
                argv = [*self._argv(empty, work / "report", None), "--prune-rule-cache"]
                execute(guard, job, argv, name=self.name, exit_codes=EXIT_CODES)
            cache.chmod(0o500)
            done.write_text(stamp, "utf-8")


@dataclass(frozen=True, slots=True)
class _Beside:
    """Files of the bare folder, which kingfisher reads and counts beside the blobs of a whole scan."""

    files: int = 0
    bytes: int = 0


def _files_beside(repository: Path) -> _Beside:
    files = size = 0
    for folder, _, names in os.walk(repository):
        for name in names:
            with suppress(OSError):
                found = (Path(folder) / name).lstat()
                if stat.S_ISREG(found.st_mode):
                    files += 1
                    size += found.st_size
    return _Beside(files, size)


def read(finished: Finished, *, beside: _Beside, name: str) -> Reading:
    """Read report and log of one run. Raises ``ScanFault`` when either says that the scan is not whole."""
    log = finished.stderr.read_bytes()[:_LOG_LIMIT_BYTES]
    error = _ERROR_LINE.search(log)
    if error:
        line = printable(log[error.start() :].strip().splitlines()[0])
        raise ScanFault("scanner_error", f"{name} logged an error: {line}", exit_code=finished.exit_code)
    report = _load(finished.report, name)
    try:
        audited = report["audit"]["repositories"]
        status = [entry["scan"]["status"] for entry in audited]
        stats = audited[0]["stats"]
        blobs, size = int(stats["blobs_scanned"]), int(stats["bytes_scanned"])
        findings = tuple(_findings(report["findings"] or []))
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        msg = f"{name}: its report lacks what version 2.14 writes ({type(error).__name__}: {error})"
        raise ScanFault("scanner_report", msg) from error
    if status != ["completed"]:
        msg = f"{name} did not finish: {', '.join(map(str, status)) or 'nothing was scanned'}: {said(finished.stderr)}"
        raise ScanFault("scanner_error", msg, exit_code=finished.exit_code)
    return Reading(
        findings=findings,
        blobs=max(0, blobs - beside.files),
        bytes_read=max(0, size - beside.bytes),
        exit_code=finished.exit_code,
        seconds=finished.seconds,
    )


def _load(path: Path, name: str) -> dict[str, Any]:
    try:
        if path.stat().st_size > _REPORT_LIMIT_BYTES:
            msg = f"{name}: its report is larger than {_REPORT_LIMIT_BYTES >> 20} MiB"
            raise ScanFault("scanner_report", msg)
        report = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        msg = f"{name}: its report cannot be read: {type(error).__name__}"
        raise ScanFault("scanner_report", msg) from error
    if not isinstance(report, dict):
        msg = f"{name}: its report is no JSON object"
        raise ScanFault("scanner_report", msg)
    return cast("dict[str, Any]", report)


def _findings(items: Iterable[Mapping[str, Any]]) -> Iterator[RawFinding]:
    for item in items:
        rule, found = item["rule"], item["finding"]
        path, commit, blob = str(found["path"]), None, None
        git = found.get("git_metadata")
        if git:
            path = str(git["file"]["path"])
            commit = str(git["commit"]["id"])
        else:
            loose = _LOOSE_OBJECT.search(path)
            if loose is None:
                continue  # a file of the bare folder: ours
            blob = loose[1] + loose[2]
            path = f"objects/{loose[1]}/{loose[2]}"
        confidence = str(found.get("confidence", "")).casefold()
        yield RawFinding(
            rule=str(rule["id"]),
            rule_name=str(rule.get("name") or rule["id"]),
            severity=severity.of_secret(str(rule["id"]), confidence),
            confidence=confidence,
            secret=str(found["snippet"]).encode("utf-8", "surrogatepass"),
            path=path.encode("utf-8", "surrogatepass"),
            line=int(found["line"]) or None,
            column=int(found["column_start"]) + 1,
            commit=commit,
            blob=blob,
        )
