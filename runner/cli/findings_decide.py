"""``resweep findings triage|baseline|ignore``: what people decide; the count is shown before many rows change."""

from pathlib import Path
from typing import Any

import click

from ...queue import findings_baseline, findings_reads, ignore_rules
from ...queue.findings_reads import FindingFilter, PageMark
from ...queue.triage import Decision, Verdict, decide
from ...schema.database import Connection
from ...schema.errors import UsageFault
from ...schema.text import display
from ..export.document import SCHEMA, to_json
from .findings_frame import FindingsAccess, access, chosen, confirm, filters, findings, moment, somebody, table
from .findings_read import matching, one_finding

_BATCH = 1_000
_SHOWN = 20


@findings.command("triage")
@click.argument("named", nargs=-1, metavar="[FINDING]...")
@filters
@click.option("--accept", "verdict", flag_value="accepted", help="A real secret that is tolerated.")
@click.option("--false-positive", "verdict", flag_value="false_positive", help="No secret at all.")
@click.option("--reopen", "verdict", flag_value="open", help="Take an earlier decision back.")
@click.option("--why", default="", help="The reason; needed for --accept and --false-positive.")
@click.option("--until", metavar="TIME", help="Open again after this: 30d, 2027-01-31.")
@click.option("--who", help="Who decides (default: this user).")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def triage_command(
    *,
    named: tuple[str, ...],
    verdict: str | None,
    why: str,
    until: str | None,
    who: str | None,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Decide about findings: those that are named, or all that the filters mean."""
    reach = access()
    if verdict is None:
        message = "say what is decided: --accept, --false-positive or --reopen"
        raise UsageFault(message)
    decision = Decision(
        verdict=Verdict(verdict),
        by=somebody(who),
        why=why,
        until=moment(until, reach.now, back=False) if until is not None else None,
    )
    decision.check()
    filtered = any(value not in (None, ()) for value in options.values())
    if bool(named) == filtered:
        message = (
            "name findings, or say by filters which are meant (--rule, --path, --target, …); not both, not neither"
        )
        raise UsageFault(message)
    with reach.transaction() as conn:
        if named:
            wanted = FindingFilter(statuses=None, finding_ids=tuple(one_finding(conn, text).id for text in named))
        else:
            states = options.pop("states") or (("accepted", "false_positive") if verdict == "open" else ())
            wanted = chosen(reach.now, states=states, **options)
        total = matching(conn, wanted)
    if dry_run or total == 0:
        click.echo(f"{total} findings match; nothing was changed")
        return
    if total > 1:
        confirm(f"{total} findings will be marked {decision.verdict.value}", yes=yes)
    click.echo(f"{_decide_all(reach, wanted, decision)} findings changed, {total} matched")


def _decide_all(reach: FindingsAccess, wanted: FindingFilter, decision: Decision) -> int:
    """Decide batch by batch, each its own transaction; a break leaves whole batches done and may be repeated."""
    changed = 0
    after: PageMark | None = None
    while True:
        with reach.transaction() as conn:
            rows = findings_reads.list_findings(conn, wanted, after=after, limit=_BATCH, places=0)
            changed += len(decide(conn, [row.id for row in rows], decision)) if rows else 0
        if len(rows) < _BATCH:
            return changed
        after = PageMark(rows[-1].severity, rows[-1].id)


@findings.group()
def baseline() -> None:
    """Take over what was accepted elsewhere."""


@baseline.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--target", "targets", multiple=True, metavar="TARGET", help="Whose findings are meant.")
@click.option("--source", "sources", multiple=True, metavar="SOURCE", help="Only targets of this source.")
@click.option("--who", help="Who decides (default: this user).")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True)
def baseline_import(
    *,
    file: Path,
    targets: tuple[str, ...],
    sources: tuple[str, ...],
    who: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Accept the findings of a baseline: kingfisher's, SARIF, or our own JSON.

    Entries without our identity need --target: rule, path and line alone do not say which repository.
    """
    reach = access()
    try:
        data = file.read_bytes()
    except OSError as error:
        message = f"the baseline {file} cannot be read: {error.strerror}"
        raise UsageFault(message) from error
    entries = findings_baseline.parse_baseline(data, file.name)
    with reach.transaction() as conn:
        ids = _targets(conn, targets, sources)
        match = findings_baseline.match_baseline(conn, entries, target_ids=ids)
    changed: list[int] = []
    if not dry_run and match.finding_ids:
        confirm(f"{len(match.finding_ids)} findings will be accepted (baseline {file.name})", yes=yes)
        for start in range(0, len(match.finding_ids), _BATCH):
            part = findings_baseline.BaselineMatch(finding_ids=match.finding_ids[start : start + _BATCH], matched=0)
            with reach.transaction() as conn:
                changed += findings_baseline.accept_baseline(conn, part, name=file.name, by=somebody(who))
    if as_json:
        items = [{"rule": e.rule, "path": e.path, "line": e.line} for e in match.unmatched]
        click.echo(
            to_json(
                {
                    "schema": SCHEMA,
                    "items": items,
                    "total": len(entries),
                    "matched": match.matched,
                    "findings": len(match.finding_ids),
                    "changed": len(changed),
                }
            )
        )
        return
    click.echo(
        f"{match.matched} of {len(entries)} entries match {len(match.finding_ids)} findings; {len(changed)} changed"
    )
    if match.unmatched:
        click.echo(
            f"{len(match.unmatched)} entries match nothing" + ("" if targets else "; --target may be missing"), err=True
        )
        table(("RULE", "PATH", "LINE"), ((e.rule, e.path, e.line) for e in match.unmatched[:_SHOWN]))


def _targets(conn: Connection, names: tuple[str, ...], sources: tuple[str, ...]) -> list[int] | None:
    """Give the ids of the named targets; None when none is named."""
    if not names:
        return None
    found = findings_reads.targets_named(conn, names, sources or None)
    missing = [name for name, ids in found.items() if not ids]
    if missing:
        message = f"there is no target {display(missing[0])!r}; `resweep queue list` shows their names"
        raise UsageFault(message)
    return sorted({target_id for ids in found.values() for target_id in ids})


@findings.group()
def ignore() -> None:
    """Rules that hide findings, each with a reason; nothing is dropped."""


@ignore.command("add")
@click.argument("pattern", required=False)
@click.option("--identity", help="Hide one secret: its identity, 64 hex digits.")
@click.option("--source", help="Only in this source.")
@click.option("--target", help="Only in this target.")
@click.option("--why", default="", help="The reason; needed.")
@click.option("--who", help="Who decides (default: this user).")
def ignore_add(
    *, pattern: str | None, identity: str | None, source: str | None, target: str | None, why: str, who: str | None
) -> None:
    """Hide what stands only below PATTERN (as in ignore files: tests/, *.lock, /docs/**), or one identity."""
    reach = access()
    if (pattern is None) == (identity is None):
        message = "give a path pattern, or --identity; one of the two"
        raise UsageFault(message)
    with reach.transaction() as conn:
        source_id = findings_reads.source_named(conn, source) if source is not None else None
        if source is not None and source_id is None:
            message = f"there is no source {display(source)!r}; `resweep sources list` shows their names"
            raise UsageFault(message)
        ids = _targets(conn, (target,), ()) if target is not None else None
        if ids is not None and len(ids) > 1:
            message = f"{len(ids)} targets are called {display(target or '')!r}; use a source instead"
            raise UsageFault(message)
        rule_id = ignore_rules.add(
            conn,
            kind="path" if identity is None else "identity",
            pattern=pattern or identity or "",
            reason=why,
            by=somebody(who),
            source_id=source_id,
            target_id=ids[0] if ids else None,
        )
    click.echo(f"rule {rule_id} holds; {_apply(reach, rule_id)} findings changed")


@ignore.command("remove")
@click.argument("rule_id", type=click.IntRange(1))
@click.option("--who", help="Who decides (default: this user).")
def ignore_remove(*, rule_id: int, who: str | None) -> None:
    """End a rule; what it hid is open again, unless another rule hides it."""
    reach = access()
    with reach.transaction() as conn:
        if not ignore_rules.remove(conn, rule_id, by=somebody(who)):
            message = f"there is no living ignore rule {rule_id}; `resweep findings ignore list` shows them"
            raise UsageFault(message)
    click.echo(f"rule {rule_id} ended; {_apply(reach, rule_id)} findings changed")


@ignore.command("list")
@click.option("--all", "everything", is_flag=True, help="Also rules that were ended.")
@click.option("--json", "as_json", is_flag=True)
def ignore_list(*, everything: bool, as_json: bool) -> None:
    """List the rules and how much each hides."""
    with access().transaction() as conn:
        rules = ignore_rules.list_rules(conn, removed=everything)
    if as_json:
        items = [
            {
                "id": rule.id,
                "kind": rule.kind,
                "pattern": rule.pattern,
                "source": rule.source,
                "target_id": rule.target_id,
                "reason": rule.reason,
                "created_by": rule.created_by,
                "created_at": rule.created_at.isoformat(),
                "removed_by": rule.removed_by,
                "removed_at": rule.removed_at.isoformat() if rule.removed_at else None,
                "ignored_count": rule.ignored_count,
            }
            for rule in rules
        ]
        click.echo(to_json({"schema": SCHEMA, "items": items, "total": len(items)}))
        return
    table(
        ("ID", "KIND", "PATTERN", "WHERE", "HIDES", "BY", "REASON"),
        (
            (r.id, r.kind, r.pattern, r.source or r.target_id or "everywhere", r.ignored_count, r.created_by, r.reason)
            for r in rules
        ),
    )


def _apply(reach: FindingsAccess, rule_id: int) -> int:
    """Bring all findings in line with the rules, batch by batch."""
    changed = after = 0
    while True:
        with reach.transaction() as conn:
            step = ignore_rules.apply(conn, rule_id, after_id=after, limit=_BATCH)
        changed += step.changed
        after = step.last_id
        if step.finished:
            return changed
