"""Take over what was accepted elsewhere: baselines of kingfisher, SARIF, and our own JSON.

An entry with our identity is matched by it, wherever it stands. One without is matched by rule, path and line inside
the targets that the person names: a baseline that names only a path would accept the next secret in that file too.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeGuard, cast
from urllib.parse import unquote

import yaml
from psycopg import Connection
from psycopg.rows import tuple_row

from ..schema.database import statement
from ..schema.errors import UsageFault
from ..schema.text import store_text
from .triage import Decision, Verdict, decide

FILE_LIMIT_BYTES: Final = 64 * 1024 * 1024
_BATCH: Final = 5_000
_IDENTITY_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineEntry:
    """One accepted finding, as far as the file tells it."""

    rule: str
    path: str = ""
    line: int | None = None
    identity: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineMatch:
    """What a baseline hit."""

    finding_ids: tuple[int, ...]
    matched: int  # entries
    unmatched: tuple[BaselineEntry, ...] = field(default=())


def parse_baseline(data: bytes, name: str) -> list[BaselineEntry]:
    """Read a baseline; its format is told by what it holds. Raises ``UsageFault`` naming the file for anything else."""
    if len(data) > FILE_LIMIT_BYTES:
        message = f"{name} is larger than {FILE_LIMIT_BYTES // 1024 // 1024} MB; split it"
        raise UsageFault(message)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{name} is no text in UTF-8: {error.reason} at byte {error.start}"
        raise UsageFault(message) from error
    return _entries(_load(text, name), name)


def match_baseline(
    conn: Connection[Any], entries: Sequence[BaselineEntry], *, target_ids: Sequence[int] | None
) -> BaselineMatch:
    """Find the findings that a baseline means.

    ``target_ids`` None means all targets, and then only entries with our identity can match.
    """
    found: set[int] = set()
    hit: set[int] = set()
    for start in range(0, len(entries), _BATCH):
        batch = entries[start : start + _BATCH]
        with conn.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                statement("resweep.queue.sql", "findings_baseline"),
                {
                    "numbers": list(range(start, start + len(batch))),
                    "identities": [entry.identity for entry in batch],
                    "rules": [store_text(entry.rule, limit=1_024) for entry in batch],
                    "paths": [store_text(entry.path, limit=8_192) for entry in batch],
                    "lines": [entry.line for entry in batch],
                    "target_ids": None if target_ids is None else list(target_ids),
                },
            )
            for number, finding_id in cursor:
                hit.add(number)
                found.add(finding_id)
    return BaselineMatch(
        finding_ids=tuple(sorted(found)),
        matched=len(hit),
        unmatched=tuple(entry for number, entry in enumerate(entries) if number not in hit),
    )


def accept_baseline(
    conn: Connection[Any], match: BaselineMatch, *, name: str, by: str, now: datetime | None = None
) -> list[int]:
    """Accept what a baseline hit, for the reason that it stands there; gives the ids that this changed."""
    return decide(conn, match.finding_ids, Decision(verdict=Verdict.ACCEPTED, by=by, why=f"baseline {name}"), now=now)


def _load(text: str, name: str) -> Any:
    """Read JSON, JSON lines or YAML."""
    begin = text.lstrip()[:1]
    try:
        if begin not in ("{", "["):
            return yaml.safe_load(text)
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            lines = [line for line in text.splitlines() if line.strip()]
            if len(lines) < 2 or error.msg != "Extra data":  # noqa: PLR2004 - one document, and it is broken
                raise
            return [json.loads(line) for line in lines]
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:200]
        message = f"{name} can be read neither as JSON nor as YAML: {reason}"
        raise UsageFault(message) from error


def _entries(document: Any, name: str) -> list[BaselineEntry]:
    """Tell the format and take its entries."""
    parts = _mapping(document)
    if isinstance(parts.get("runs"), list):
        return list(_sarif(parts["runs"]))
    if isinstance(parts.get("repositories"), list) and "fingerprint_algorithm" in parts:
        return list(_kingfisher(parts["repositories"]))
    if isinstance(parts.get("items"), list):
        return _ours(parts["items"], name)
    if "identity" in parts:
        return _ours([parts], name)
    if _is_list(document):
        return _ours(document, name)
    message = (
        f"{name} is no baseline that is known: a kingfisher baseline, SARIF, or what `findings export` writes as JSON"
    )
    raise UsageFault(message)


def _ours(items: Iterable[Any], name: str) -> list[BaselineEntry]:
    """Entries of our own JSON: by identity."""
    entries: list[BaselineEntry] = []
    for number, item in enumerate(items, start=1):
        parts = _mapping(item)
        identity = _identity(parts.get("identity"))
        if identity is None:
            message = (
                f"entry {number} of {name} has no identity of 64 hex digits, as `findings export --format json` writes"
            )
            raise UsageFault(message)
        entries.append(BaselineEntry(rule=str(parts.get("rule", "")), identity=identity))
    return entries


def _kingfisher(repositories: Any) -> Iterable[BaselineEntry]:
    """Entries of a kingfisher baseline. Its fingerprint is not stable and no use to us; rule, path and line are."""
    for repository in _mappings(repositories):
        for each in _mappings(repository.get("findings")):
            yield BaselineEntry(
                rule=str(each.get("rule_id", "")), path=str(each.get("path", "")), line=_line(each.get("line"))
            )


def _sarif(runs: Any) -> Iterable[BaselineEntry]:
    """Entries of SARIF: our fingerprint where there is one, else rule and first place."""
    for run in _mappings(runs):
        for result in _mappings(run.get("results")):
            known = _mapping(result.get("partialFingerprints")).get("resweepIdentity/v1")
            path, line = _sarif_place(result)
            yield BaselineEntry(rule=str(result.get("ruleId", "")), path=path, line=line, identity=_identity(known))


def _sarif_place(result: Mapping[str, Any]) -> tuple[str, int | None]:
    """Path and line of a result's first location."""
    for location in _mappings(result.get("locations")):
        physical = _mapping(location.get("physicalLocation"))
        if physical:
            uri = str(_mapping(physical.get("artifactLocation")).get("uri", ""))
            return unquote(uri).removeprefix("./"), _line(_mapping(physical.get("region")).get("startLine"))
    return "", None


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    """Tell a list, of whatever."""
    return isinstance(value, list)


def _mapping(value: Any) -> Mapping[str, Any]:
    """A mapping as it is, anything else as an empty one; a file may hold anything."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _mappings(values: Any) -> list[Mapping[str, Any]]:
    """What of a list are mappings; nothing when it is no list."""
    found = values if _is_list(values) else []
    return [cast("Mapping[str, Any]", value) for value in found if isinstance(value, Mapping)]


def _identity(value: Any) -> bytes | None:
    """Read an identity of 64 hex digits, or None."""
    try:
        identity = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        return None
    return identity if len(identity) == _IDENTITY_BYTES else None


def _line(value: Any) -> int | None:
    """Read a line number, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else None
