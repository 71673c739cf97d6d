"""Findings as SARIF 2.1.0 that GitHub takes: its limits are kept by opening another run or another file in time.

Limits (docs.github.com, "SARIF results exceed limits"): 20 runs a file, 25,000 results a run, 10 MB when gzipped, 20
tags a rule, 1,000 locations a result. A run is one repository; every run has a category of its own. Paths are
percent-encoded and relative, lines and columns count from 1, our identity is the fingerprint (a line that moves makes
no new alert). What is triaged or ignored is a suppressed result; what is fixed is no result at all.
"""

import re
import zlib
from collections.abc import Callable
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from ...queue.findings_reads import FindingRow, PlaceRow
from ...schema.text import display
from .document import to_json

SCHEMA_ADDRESS: Final = "https://json.schemastore.org/sarif-2.1.0.json"
RUNS_A_FILE: Final = 20
RESULTS_A_RUN: Final = 25_000
BYTES_A_FILE: Final = 10_000_000
TAGS_A_RULE: Final = 20
LOCATIONS_A_RESULT: Final = 100  # GitHub shows so many of the 1,000 it takes

_LEVELS: Final = {"critical": "error", "high": "error", "medium": "warning", "low": "note", "info": "note"}
_SCORES: Final = {"critical": "9.5", "high": "8.0", "medium": "5.5", "low": "2.5", "info": "0.5"}
_RULE_ID_LIMIT: Final = 255
_TEXT_LIMIT: Final = 1_000
# What a compressor may still hold back, and the frame of a file around its runs.
_SLACK_BYTES: Final = 160_000
_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MAX_NUMBER: Final = 2**31 - 1


class SarifFull(Exception):
    """The file can take no more of this; nothing of it was written."""


class SarifFile:
    """One SARIF file, written as its results come in. ``end`` must be called last."""

    def __init__(
        self,
        write: Callable[[str], object],
        *,
        version: str,
        results_a_run: int = RESULTS_A_RUN,
        bytes_a_file: int = BYTES_A_FILE,
        part: int = 1,
    ) -> None:
        """Begin a file; ``write`` takes its text, ``part`` counts the files of one repository."""
        self._write = write
        self._version = version
        self._results_a_run = results_a_run
        self._bytes_a_file = bytes_a_file
        self._part = part
        self._packer = zlib.compressobj()
        self._packed = 0
        self._runs = 0
        self._run: _Run | None = None
        self.results = 0
        self._put(f'{{"$schema":"{SCHEMA_ADDRESS}","version":"2.1.0","runs":[')

    def add(self, row: FindingRow, owners: tuple[str, ...] = ()) -> None:
        """Add a finding that is not fixed; findings of one repository come together.

        Raises ``SarifFull`` when the file would break a limit.
        """
        run = self._run
        fresh = run is None or run.target_id != row.target_id or run.results >= self._results_a_run
        index, rule = (0, rule_of(row)) if run is None or fresh else run.look_up(row)
        result = to_json(result_of(row, owners, index))
        needed = len(result) + (len(to_json(rule)) if rule is not None else 0)
        pending = 0 if run is None else run.rule_bytes
        if self.results and self._packed + pending + needed + _SLACK_BYTES > self._bytes_a_file:
            raise SarifFull
        if fresh:
            if self._runs >= RUNS_A_FILE:
                raise SarifFull
            self._end_run()
            self._runs += 1
            run = _Run(row.target_id)
            self._run = run
            self._put(self._opening(row))
        assert run is not None  # noqa: S101 - made just above when there was none
        if rule is not None:
            run.take(row.rule, rule)
        self._put(("," if run.results else "") + "\n" + result)
        run.results += 1
        self.results += 1

    def end(self) -> None:
        """Close the last run and the file."""
        self._end_run()
        self._put("]}\n")

    def _opening(self, row: FindingRow) -> str:
        """The head of a run, up to its results."""
        category = f"resweep/{plain(row.source)}/{plain(row.display_name)}/{self._part}.{self._runs}/"
        head: dict[str, object] = {
            "automationDetails": {"id": category},
            "columnKind": "utf16CodeUnits",
            "properties": {"source": plain(row.source), "target": plain(row.display_name)},
        }
        address = repository_uri(row.address)
        if address is not None:
            head["versionControlProvenance"] = [{"repositoryUri": address}]
        return ("," if self._runs > 1 else "") + "\n" + to_json(head)[:-1] + ',"results":['

    def _end_run(self) -> None:
        """Write the rules that the run's results named."""
        if self._run is None:
            return
        driver = {
            "name": "Resweep",
            "semanticVersion": self._version,
            "version": self._version,
            "rules": self._run.rules,
        }
        self._put('],"tool":' + to_json({"driver": driver}) + "}")
        self._run = None

    def _put(self, text: str) -> None:
        """Write, and keep count of what it will weigh when it is packed."""
        self._packed += len(self._packer.compress(text.encode("ascii")))
        self._write(text)


class _Run:
    """One run that is being written."""

    def __init__(self, target_id: int) -> None:
        self.target_id = target_id
        self.results = 0
        self.rules: list[dict[str, object]] = []
        self.rule_bytes = 0
        self._index: dict[str, int] = {}

    def look_up(self, row: FindingRow) -> tuple[int, dict[str, object] | None]:
        """Give the index of a finding's rule, and the rule itself when the run has not named it yet."""
        index = self._index.get(row.rule)
        return (len(self.rules), rule_of(row)) if index is None else (index, None)

    def take(self, name: str, rule: dict[str, object]) -> None:
        """Name a rule in this run."""
        self._index[name] = len(self.rules)
        self.rules.append(rule)
        self.rule_bytes += len(to_json(rule))


def rule_of(row: FindingRow) -> dict[str, object]:
    """Describe the rule of a finding as GitHub reads it."""
    name = plain(row.rule_name) or rule_id(row.rule)
    tags = ["security", "secret", *(plain(scanner)[:100] for scanner in row.scanners)][:TAGS_A_RULE]
    return {
        "id": rule_id(row.rule),
        "name": name[:_RULE_ID_LIMIT],
        "shortDescription": {"text": message_text(name)},
        "fullDescription": {"text": message_text(name)},
        "help": {"text": "Take the secret out of use, then remove it; a removed secret stays in the history."},
        "defaultConfiguration": {"level": _LEVELS[row.severity]},
        "properties": {
            "tags": list(dict.fromkeys(tags)),
            "security-severity": _SCORES[row.severity],
            **({"precision": row.confidence} if row.confidence in ("high", "medium", "low") else {}),
        },
    }


def result_of(row: FindingRow, owners: tuple[str, ...], rule_index: int) -> dict[str, object]:
    """Describe one finding: at its places, in the head first; suppressed when a person or a rule said so."""
    identity = row.identity.hex()
    places = row.places[:LOCATIONS_A_RESULT]
    result: dict[str, object] = {
        "ruleId": rule_id(row.rule),
        "ruleIndex": rule_index,
        "level": _LEVELS[row.severity],
        "message": {"text": message_text(f"{row.rule_name or row.rule}: {row.masked}")},
        "locations": [location_of(place) for place in places] or [{"physicalLocation": _nowhere()}],
        "partialFingerprints": {"primaryLocationLineHash": f"{identity}:1", "resweepIdentity/v1": identity},
        "properties": {
            "findingId": row.id,
            "status": row.status,
            "severity": row.severity,
            "scanners": [plain(scanner) for scanner in row.scanners],
            "owners": list(owners),
            "inHead": row.head_count > 0,
            "placeCount": row.place_count + row.unlisted_count,
            "firstCommit": plain(row.first_commit or ""),
            "firstSeenAt": row.first_seen_at.isoformat(),
        },
    }
    if row.status in ("accepted", "false_positive") and row.triage is not None:
        reason = f"{row.status.replace('_', ' ')} by {row.triage.by}: {row.triage.why}"
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": plain(reason)}]
    elif row.status == "ignored":
        kind = "inSource" if row.ignored_rule is None else "external"
        result["suppressions"] = [{"kind": kind, "status": "accepted", "justification": plain(row.ignored_why or "")}]
    return result


def location_of(place: PlaceRow) -> dict[str, object]:
    """Describe one place. A line that is not known is the first: GitHub wants one."""
    region: dict[str, int] = {"startLine": _number(place.line)}
    if place.line is not None and place.column is not None:
        region["startColumn"] = _number(place.column)
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": path_uri(place.path), "uriBaseId": "%SRCROOT%"},
            "region": region,
        },
        "properties": {
            "commit": plain(place.commit or ""),
            "blob": plain(place.blob or ""),
            "inHead": place.in_head,
        },
    }


def path_uri(path: str) -> str:
    """A path inside a repository as a relative URI: nothing in it can be read as a scheme, a host or a query."""
    parts = path.encode("utf-8", "replace").decode("utf-8").split("/")
    encoded = "/".join({".": "%2E", "..": "%2E%2E"}.get(part) or quote(part, safe="") for part in parts)
    while encoded.startswith("/"):
        encoded = "%2F" + encoded[1:] if not encoded.startswith("//") else "%2F%2F" + encoded[2:]
    return encoded or "unknown"


def repository_uri(address: str) -> str | None:
    """The address of a repository as a URI, when it can be one."""
    text = address.encode("utf-8", "replace").decode("utf-8")
    if text.startswith("/"):
        return "file://" + quote(text)
    if _ABSOLUTE.match(text):
        scheme, rest = text.split("://", 1)
        return f"{scheme}://{quote(rest, safe='/:@%?=&+,;~')}"
    return None


def rule_id(rule: str) -> str:
    """A rule's id within GitHub's length."""
    text = plain(rule)
    if len(text) <= _RULE_ID_LIMIT:
        return text or "unnamed-rule"
    return f"{text[: _RULE_ID_LIMIT - 17]}-{sha256(rule.encode('utf-8', 'replace')).hexdigest()[:16]}"


def message_text(text: str) -> str:
    """A message that is shown as it is: SARIF reads links in brackets and placeholders in braces."""
    shown = plain(text)[:_TEXT_LIMIT].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    return shown.replace("{", "{{").replace("}", "}}") or "-"


def plain(text: str) -> str:
    """Foreign text without line breaks, control characters or what reorders letters."""
    return display(text)


def _nowhere() -> dict[str, object]:
    """A place for a finding that names none; GitHub wants one."""
    return {"artifactLocation": {"uri": "unknown", "uriBaseId": "%SRCROOT%"}, "region": {"startLine": 1}}


def _number(value: int | None) -> int:
    """A line or column as SARIF counts them: from 1."""
    return min(max(value or 1, 1), _MAX_NUMBER)
