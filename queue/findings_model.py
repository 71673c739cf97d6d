"""What a completion does to a target's findings: decided here, without a database.

The rules (product.md, "Scanning"): a finding is fixed when no scanner sees it any more; only a *complete* scan by a
scanner that covers the rule takes that scanner's sight away; seen again it is reopened; an incremental scan adds and
closes nothing; a complete scan replaces the places of what it covers. The same reports decided twice change nothing
the second time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, TypeAlias
from uuid import UUID

from ..schema.records import Finding, Place, ScanOutcome, ScanReport
from ..schema.text import store_text

SEVERITIES: Final[tuple[str, ...]] = ("info", "low", "medium", "high", "critical")
"""Severities by rank: the database stores the index."""

PLACES_KEPT: Final = 1_000
"""Places kept per finding and scanner; what lies beyond is counted, so a hostile repository cannot buy more rows."""

IDENTITY_BYTES: Final = 32

_MAX_NUMBER: Final = 2**31 - 1
_TEXT_LIMIT: Final = 1_024
_PATH_LIMIT: Final = 8_192

# What says something of the repository as it is now. "unchanged" proves sameness and names no findings; "limited" saw
# a part only; "failed" is evidence of nothing.
_CLOSING: Final = frozenset({ScanOutcome.FINDINGS, ScanOutcome.CLEAN, ScanOutcome.EMPTY})

PlaceKey: TypeAlias = tuple[str, UUID]
"""Scanner, and the hash of path, line, column, commit and blob."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlace:
    """One place as it is stored: cleaned texts, numbers in range."""

    path: str
    line: int | None
    column: int | None
    commit: str | None
    blob: str | None
    in_head: bool
    mark: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a rule says of a finding; it may change with the rules of a scanner."""

    rule_name: str
    severity: int
    confidence: str
    masked: str


@dataclass(slots=True, kw_only=True)
class Draft:
    """One finding while a completion is decided; starts as what is stored (or as nothing)."""

    target_id: int
    identity: bytes
    rule: str
    label: Label
    finding_id: int | None = None
    life: str | None = None  # None: not stored yet
    scanners: frozenset[str] = frozenset()
    seen_by: frozenset[str] = frozenset()
    unlisted: int = 0
    triaged: bool = False  # accepted or false positive at this moment
    ignored: bool = False
    head: dict[PlaceKey, bool] = field(default_factory=dict[PlaceKey, bool])  # every stored place: is it in head
    first_commit: str | None = None
    added: dict[PlaceKey, StoredPlace] = field(default_factory=dict[PlaceKey, StoredPlace])
    dropped: set[PlaceKey] = field(default_factory=set[PlaceKey])
    lost: set[str] = field(default_factory=set[str])  # scanners whose complete scan no longer showed it
    touched: bool = False
    event: str | None = None

    def standing(self) -> bool:
        """Whether any scanner sees it now."""
        return bool(self.seen_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCounts:
    """What one completion did to its target's findings; the history row and the metrics take these."""

    new_count: int = 0
    reopened_count: int = 0
    fixed_count: int = 0
    seen_count: int = 0  # distinct findings in the reports
    open_count: int | None = None  # open or reopened and neither triaged nor ignored; None: was not looked at


def severity_rank(severity: str) -> int:
    """Give the rank 0 (info) to 4 (critical); a word that is unknown counts as medium: unknown is not harmless."""
    try:
        return SEVERITIES.index(severity.lower())
    except ValueError:
        return SEVERITIES.index("medium")


def severity_from_confidence(confidence: str) -> str:
    """Give a severity to a rule that states none (kingfisher states a confidence only).

    A secret that can be used is high whatever the rule; a guess by entropy is worth less.
    """
    return {"high": "high", "medium": "medium", "low": "low"}.get(confidence.lower(), "medium")


def place_key(place: Place) -> UUID:
    """Hash what makes a place that place. Whether it is in the head may change and is not part of it."""
    digest = sha256()
    for part in (place.path, str(place.line), str(place.column), place.commit or "", place.blob or ""):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return UUID(bytes=digest.digest()[:16])


def tells(report: ScanReport) -> bool:
    """Whether the report can change any finding; when none does, the database need not be asked."""
    return closes(report) or (bool(report.findings) and report.outcome in _CLOSING | {ScanOutcome.LIMITED})


def closes(report: ScanReport) -> bool:
    """Whether what this report does not show may be taken as gone."""
    return report.complete and report.outcome in _CLOSING


def decide(
    target_id: int, reports: Sequence[ScanReport], known: Mapping[bytes, Draft]
) -> tuple[list[Draft], FindingCounts]:
    """Apply the reports of one completion to what is known of one target.

    ``known`` holds every standing finding of the target and every reported one that is stored; they are changed in
    place. Gives the drafts in order of identity (new and known) and the counts, where ``open_count`` does not yet
    know of ignore rules that hit something new.
    """
    drafts = dict(known)
    seen: set[bytes] = set()
    for report in sorted(reports, key=lambda each: each.scanner):
        if tells(report):
            seen |= _apply(target_id, report, drafts)
    counts = {"opened": 0, "reopened": 0, "fixed": 0}
    for draft in drafts.values():
        _settle(draft)
        if draft.event is not None:
            counts[draft.event] += 1
    return (
        [drafts[identity] for identity in sorted(drafts)],
        FindingCounts(
            new_count=counts["opened"],
            reopened_count=counts["reopened"],
            fixed_count=counts["fixed"],
            seen_count=len(seen),
            open_count=sum(1 for draft in drafts.values() if draft.standing() and not (draft.triaged or draft.ignored)),
        ),
    )


def _apply(target_id: int, report: ScanReport, drafts: dict[bytes, Draft]) -> set[bytes]:
    """Take in one report; gives the identities that it shows."""
    scanner = report.scanner
    found: dict[bytes, list[Finding]] = {}
    for finding in report.findings:
        if len(finding.identity) != IDENTITY_BYTES:
            message = f"a finding of {scanner} has an identity of {len(finding.identity)} bytes, not {IDENTITY_BYTES}"
            raise ValueError(message)
        found.setdefault(finding.identity, []).append(finding)
    for identity, parts in found.items():
        draft = drafts.get(identity)
        if draft is None:
            rule = store_text(parts[0].rule, limit=_TEXT_LIMIT)
            draft = Draft(target_id=target_id, identity=identity, rule=rule, label=_label(parts[0]))
            drafts[identity] = draft
        _see(draft, scanner, parts, whole=closes(report))
    if closes(report):
        for identity, draft in drafts.items():
            covered = report.rules is None or draft.rule in report.rules
            if identity not in found and scanner in draft.seen_by and covered:
                draft.seen_by -= {scanner}
                draft.lost.add(scanner)
                draft.touched = True
                _drop(draft, [key for key in draft.head if key[0] == scanner])
    return set(found)


def _see(draft: Draft, scanner: str, parts: Sequence[Finding], *, whole: bool) -> None:
    """One scanner sees one finding: its sight, its label, its places."""
    if scanner not in draft.seen_by:
        draft.seen_by |= {scanner}
        draft.scanners |= {scanner}
        draft.touched = True
    label = _label(parts[0])
    # Of several scanners the first by name speaks, so that two of them never overwrite each other for ever.
    if scanner == min(draft.seen_by) and label != draft.label:
        draft.label = label
        draft.touched = True
    _stand(draft, scanner, parts, whole=whole)
    if draft.first_commit is None:
        given = (place.commit for part in parts for place in part.places if place.commit)
        draft.first_commit = next((store_text(commit, limit=128) for commit in given), None)


def _stand(draft: Draft, scanner: str, parts: Sequence[Finding], *, whole: bool) -> None:
    """Bring the places of one finding in line with what one scanner reports of it."""
    places: dict[PlaceKey, Place] = {}
    for part in parts:
        for place in part.places:
            key = (scanner, place_key(place))
            old = places.get(key)
            if old is None or (place.in_head and not old.in_head):
                places[key] = place
    ordered = sorted(places, key=lambda key: _rank(places[key], key))
    mine = {key for key in draft.head if key[0] == scanner}
    if whole:
        kept = ordered[:PLACES_KEPT]
        _drop(draft, [key for key in mine if key not in set(kept)])
        unlisted = max(len(ordered) - len(kept), draft.unlisted if draft.seen_by != frozenset({scanner}) else 0)
    else:
        fresh = [key for key in ordered if key not in mine]
        room = max(0, PLACES_KEPT - len(mine))
        kept = [key for key in ordered if key in mine] + fresh[:room]
        # The same range may be read twice: at least so many are beyond the limit, never a sum of repeats.
        unlisted = max(draft.unlisted, len(fresh) - len(fresh[:room]))
    if unlisted != draft.unlisted:
        draft.unlisted = unlisted
        draft.touched = True
    for key in kept:
        if draft.head.get(key) != places[key].in_head:
            draft.head[key] = places[key].in_head
            draft.added[key] = _stored(places[key])
            draft.dropped.discard(key)
            draft.touched = True


def _drop(draft: Draft, keys: Sequence[PlaceKey]) -> None:
    """Forget places."""
    for key in keys:
        del draft.head[key]
        draft.added.pop(key, None)
        draft.dropped.add(key)
        draft.touched = True


def _settle(draft: Draft) -> None:
    """Say what became of the life of a finding once all reports are in."""
    if draft.life is None:
        draft.life, draft.event = "open", "opened"
        if not draft.standing():  # two reports of one scanner that contradict each other
            draft.life, draft.event = None, None
    elif draft.life == "fixed" and draft.standing():
        draft.life, draft.event = "reopened", "reopened"
    elif draft.life != "fixed" and not draft.standing():
        draft.life, draft.event = "fixed", "fixed"


def _label(finding: Finding) -> Label:
    """Clean what a rule says for storage."""
    return Label(
        rule_name=store_text(finding.rule_name, limit=_TEXT_LIMIT),
        severity=severity_rank(finding.severity or severity_from_confidence(finding.confidence)),
        confidence=store_text(finding.confidence, limit=32),
        masked=store_text(finding.masked, limit=_TEXT_LIMIT),
    )


def _rank(place: Place, key: PlaceKey) -> tuple[bool, str, int, int, bytes]:
    """Order of places when not all can be kept: the head first, then by path."""
    return (not place.in_head, place.path, place.line or 0, place.column or 0, key[1].bytes)


def _stored(place: Place) -> StoredPlace:
    """Clean one place for storage."""
    return StoredPlace(
        path=store_text(place.path, limit=_PATH_LIMIT),
        line=_number(place.line),
        column=_number(place.column),
        commit=store_text(place.commit, limit=128) if place.commit else None,
        blob=store_text(place.blob, limit=128) if place.blob else None,
        in_head=place.in_head,
        mark=store_text(place.mark, limit=_TEXT_LIMIT) if place.mark else None,
    )


def _number(value: int | None) -> int | None:
    """A line or column that can be one; a scanner may claim anything."""
    return value if value is not None and 1 <= value <= _MAX_NUMBER else None
