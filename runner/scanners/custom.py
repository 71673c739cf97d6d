"""Any command that writes SARIF or JSON lines: the adapter behind ``[scanners.NAME]`` and the presets."""

import hashlib
import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from string import Formatter

from ...schema.errors import ConfigFault
from . import jsonl, sarif
from .base import Needs, RawFinding, Reading, ScanFault, ScanJob
from .command import Finished, execute, printable, version_of
from .process import Guard

_PLACEHOLDERS = frozenset({"repository", "checkout", "report", "since"})


class Format(StrEnum):
    """How a report is written."""

    SARIF = "sarif"
    JSONL = "jsonl"  # also one JSON array, or several documents


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """A scanner as configured.

    Each word of ``command`` may hold ``{repository}`` (a bare repository), ``{checkout}`` (a folder), ``{report}``
    (the file to write; without it stdout is the report); ``since_command`` is used instead when only what is new since
    the commit ``{since}`` is to be read.
    """

    name: str
    command: tuple[str, ...]
    format: Format
    needs: Needs
    since_command: tuple[str, ...] = ()
    clean_exit_codes: frozenset[int] = frozenset({0})
    findings_exit_codes: frozenset[int] = frozenset()
    version_command: tuple[str, ...] = ()
    convert: Callable[[jsonl.Item], RawFinding | None] | None = None  # how one object of JSON lines is read
    environment: tuple[tuple[str, str], ...] = ()

    def check(self) -> None:
        """Refuse what cannot work. Raises ``ConfigFault`` naming the key, the reason and what to write."""
        key = f"scanners.{self.name}"
        if not self.command:
            msg = f"{key}.command is empty; write the program and its arguments as a list"
            raise ConfigFault(msg)
        for words, setting in ((self.command, "command"), (self.since_command, "since_command")):
            used = placeholders(words)
            unknown = used - _PLACEHOLDERS
            if unknown:
                known = ", ".join(f"{{{name}}}" for name in sorted(_PLACEHOLDERS))
                msg = f"{key}.{setting} holds {{{min(unknown)}}}; known are {known} (write {{{{ for a brace)"
                raise ConfigFault(msg)
            other = "checkout" if self.needs is Needs.REPOSITORY else "repository"
            if words and (self.needs.value not in used or other in used):
                msg = f"{key}.{setting} must hold {{{self.needs}}} and not {{{other}}}, because needs = {self.needs}"
                raise ConfigFault(msg)
        if self.since_command and ("since" not in placeholders(self.since_command) or self.needs is Needs.CHECKOUT):
            msg = f"{key}.since_command must hold {{since}}, and needs = repository"
            raise ConfigFault(msg)
        if "since" in placeholders(self.command):
            msg = f"{key}.command holds {{since}}; put the command for new commits into {key}.since_command"
            raise ConfigFault(msg)
        both = self.clean_exit_codes & self.findings_exit_codes - {0}
        if both:
            msg = f"{key}.findings_exit_codes holds {min(both)}, which also means clean; an exit code has one meaning"
            raise ConfigFault(msg)


def placeholders(words: tuple[str, ...]) -> set[str]:
    """The placeholders in an argument list. Raises ``ConfigFault`` for a brace that is none."""
    try:
        return {name for word in words for _, name, _, _ in Formatter().parse(word) if name is not None}
    except ValueError as error:
        msg = f"a scanner's command holds a lone brace ({error}); write {{{{ or }}}} for a brace"
        raise ConfigFault(msg) from error


class CommandScanner:
    """The adapter for a ``CommandSpec``; one per process, used by all its threads."""

    proves_work = False  # no such report says how much was read; the canary at the start is the proof
    blob_bytes = None

    def __init__(self, spec: CommandSpec) -> None:
        """Check the spec. Raises ``ConfigFault``."""
        spec.check()
        self._spec = spec
        self._version: str | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The configured name."""
        return self._spec.name

    @property
    def needs(self) -> Needs:
        """What it is pointed at."""
        return self._spec.needs

    @property
    def incremental(self) -> bool:
        """Whether there is a command for new commits."""
        return bool(self._spec.since_command)

    def leaves_out(self, path: bytes) -> bool:
        """Not known, so never said."""
        del path
        return False

    def prepare(self, guard: Guard, *, cancel: threading.Event | None = None) -> None:
        """Find the program and ask for its version, where the spec says how."""
        with self._lock:
            if self._version is not None:
                return
            program = self._spec.command[0]
            if shutil.which(program) is None:
                msg = f"scanners.{self.name}: the program {program!r} was not found; install it or correct the command"
                raise ScanFault("scanner_missing", msg)
            words = self._spec.version_command
            self._version = version_of(guard, words, name=self.name, cancel=cancel) if words else _file_digest(program)

    def fingerprint(self) -> bytes:
        """SHA-256 over the version (or, without one, the program file) and every setting."""
        spec = self._spec
        codes = [sorted(spec.clean_exit_codes), sorted(spec.findings_exit_codes)]
        settings = [self._version, spec.command, spec.since_command, spec.format, spec.needs, codes, spec.environment]
        return hashlib.sha256(json.dumps(settings).encode()).digest()

    def scan(self, guard: Guard, job: ScanJob) -> Reading:
        """Run the command and read its report."""
        spec = self._spec
        values = {
            "repository": str(job.repository),
            "checkout": str(job.checkout),
            "report": str(job.work / "report"),
            "since": job.since or "",
        }
        words = spec.since_command if job.since else spec.command
        argv = [word.format_map(values) for word in words]
        codes = spec.clean_exit_codes | spec.findings_exit_codes
        finished = execute(guard, job, argv, name=self.name, exit_codes=codes, extra=dict(spec.environment))
        content = _content(finished, words, job, self.name)
        root = str(job.checkout if spec.needs is Needs.CHECKOUT else job.repository)
        findings = self._parse(content, root)
        if not findings and finished.exit_code in spec.findings_exit_codes - spec.clean_exit_codes:
            msg = f"{self.name} ended with exit code {finished.exit_code} (findings), but its report holds none"
            raise ScanFault("scanner_report", msg, exit_code=finished.exit_code)
        return Reading(findings=tuple(findings), exit_code=finished.exit_code, seconds=finished.seconds)

    def _parse(self, content: bytes, root: str) -> list[RawFinding]:
        if self._spec.format is Format.JSONL:
            found = jsonl.read(content, name=self.name, convert=self._spec.convert)
            return [_below(raw, root) for raw in found]
        found = sarif.read(content, name=self.name, root=root)
        failure = sarif.failed(content)
        if failure is not None:
            msg = f"{self.name} says that it failed: {printable(failure.encode())}"
            raise ScanFault("scanner_error", msg)
        return found


def _below(raw: RawFinding, root: str) -> RawFinding:
    prefix = root.encode() + b"/"
    return replace(raw, path=raw.path.removeprefix(prefix)) if raw.path.startswith(prefix) else raw


def _content(finished: Finished, words: tuple[str, ...], job: ScanJob, name: str) -> bytes:
    path = finished.report if "report" in placeholders(words) else finished.stdout
    limit = job.limits.output_bytes
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        msg = f"{name} wrote no report to {{report}} ({error.strerror})"
        raise ScanFault("scanner_report", msg, exit_code=finished.exit_code) from error
    if len(content) > limit:
        msg = f"{name}: its report is larger than {limit >> 20} MiB (scan.output_mb)"
        raise ScanFault("scanner_report", msg, exit_code=finished.exit_code)
    return content


def _file_digest(program: str) -> str:
    path = Path(shutil.which(program) or program)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
