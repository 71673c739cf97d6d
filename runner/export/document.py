"""One finding as a JSON document: the same shape in lists, in ``show`` and in exports."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from ...queue.findings_reads import EventRow, FindingRow, PlaceRow

SCHEMA = 1
"""Number of the shape; it grows when a name changes its meaning or goes."""


def finding_document(row: FindingRow, owners: Sequence[str] = ()) -> dict[str, object]:
    """Build the document; times are UTC in ISO 8601, identities and commits hex. Never holds a secret's clear text."""
    triage = row.triage
    return {
        "id": row.id,
        "identity": row.identity.hex(),
        "status": row.status,
        "life": row.life,
        "severity": row.severity,
        "confidence": row.confidence,
        "rule": row.rule,
        "rule_name": row.rule_name,
        "masked": row.masked,
        "source": row.source,
        "target_id": row.target_id,
        "normalized_target": row.target,
        "display_name": row.display_name,
        "address": row.address,
        "scanners": list(row.scanners),
        "seen_by": list(row.seen_by),
        "in_head": row.head_count > 0,
        "place_count": row.place_count,
        "unlisted_count": row.unlisted_count,
        "places": [place_document(place) for place in row.places],
        "owners": list(owners),
        "first_commit": row.first_commit,
        "first_seen_at": _time(row.first_seen_at),
        "last_seen_at": _time(row.last_seen_at),
        "fixed_at": _time(row.fixed_at),
        "reopened_at": _time(row.reopened_at),
        "triage": None
        if triage is None
        else {
            "verdict": triage.verdict,
            "by": triage.by,
            "why": triage.why,
            "at": _time(triage.at),
            "until": _time(triage.until),
        },
        "ignored_why": row.ignored_why,
        "ignored_rule": row.ignored_rule,
    }


def place_document(place: PlaceRow) -> dict[str, object]:
    """Build the document of one place."""
    return {
        "path": place.path,
        "line": place.line,
        "column": place.column,
        "commit": place.commit,
        "blob": place.blob,
        "in_head": place.in_head,
        "scanners": list(place.scanners),
    }


def event_document(event: EventRow) -> dict[str, object]:
    """Build the document of one thing that happened to a finding."""
    return {
        "at": _time(event.at),
        "kind": event.kind,
        "by": event.by,
        "why": event.why,
        "until": _time(event.until),
        "lease_token": event.lease_token,
    }


def to_json(value: object) -> str:
    """Write JSON in plain ASCII: nothing in it can act on a terminal, and every reader reads it."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _time(value: datetime | None) -> str | None:
    """ISO 8601, UTC, with a ``Z``."""
    return None if value is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")
