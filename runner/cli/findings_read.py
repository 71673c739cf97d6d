"""``resweep findings list|show|export``: always masked, but for the one secret that a person asks to see."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import click

from ...queue import findings_reads
from ...queue.findings_owners import CodeOwners, code_owners, owned_targets
from ...queue.findings_reads import FindingFilter, FindingRow, PageMark
from ...queue.triage import note_reveal
from ...schema.database import Connection
from ...schema.errors import UsageFault
from ...schema.text import display
from ..export.document import SCHEMA, event_document, finding_document, to_json
from ..export.export import Exported, Format, export_to_folder, export_to_stream
from ..export.tables import Owned
from .findings_frame import FindingsAccess, access, chosen, filters, findings, somebody, table
from .reveal import NotRevealed, Revealed, reveal

_PREFIX_DIGITS = 8
_CHUNK = 200


@findings.command("list")
@filters
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--after", metavar="MARK", help="Go on after this mark, as the page before printed it.")
@click.option("--json", "as_json", is_flag=True)
def list_command(*, limit: int, after: str | None, as_json: bool, **options: Any) -> None:
    """List findings, the worst first and of those the newest."""
    reach = access()
    wanted = chosen(reach.now, **options)
    with reach.transaction() as conn:
        rows = findings_reads.list_findings(conn, wanted, after=_mark(after), limit=limit)
        counts = findings_reads.count_findings(conn, wanted)
        owned = list(with_owners(conn, rows))
    total = sum(counts.values())
    following = f"{rows[-1].severity}:{rows[-1].id}" if len(rows) == limit else None
    if as_json:
        items = [finding_document(row, owners) for row, owners in owned]
        click.echo(to_json({"schema": SCHEMA, "items": items, "total": total, "next": following}))
        return
    table(
        ("ID", "STATUS", "SEVERITY", "RULE", "TARGET", "WHERE", "SECRET", "OWNERS"),
        ((r.id, r.status, r.severity, r.rule, r.display_name, _where(r), r.masked, " ".join(o)) for r, o in owned),
    )
    click.echo(f"{len(rows)} of {total} findings" + (f"; more: --after {following}" if following else ""), err=True)


@findings.command("show")
@click.argument("finding")
@click.option("--json", "as_json", is_flag=True)
@click.option(
    "--reveal", "revealing", is_flag=True, help="Show the secret once; needs findings.allow_reveal; recorded."
)
@click.option("--why", default="", help="Why the secret has to be seen.")
@click.option("--who", help="Who asks (default: this user).")
def show_command(*, finding: str, as_json: bool, revealing: bool, why: str, who: str | None) -> None:
    """Show one finding with its places and its life. FINDING is an id, or the beginning of an identity."""
    reach = access()
    if revealing:
        if as_json:
            message = "a secret is shown to a person, never in --json; leave one of the two out"
            raise UsageFault(message)
        _reveal(reach, finding, by=somebody(who), why=why)
        return
    with reach.transaction() as conn:
        row = one_finding(conn, finding)
        events = findings_reads.life(conn, row.id)
        owners = next(iter(with_owners(conn, [row])))[1]
    if as_json:
        item = {**finding_document(row, owners), "life_events": [event_document(event) for event in events]}
        click.echo(to_json({"schema": SCHEMA, "items": [item], "total": 1}))
        return
    for name, value in finding_document(row, owners).items():
        if name not in ("places", "triage") and value not in (None, [], ""):
            shown = value if isinstance(value, str) else to_json(value)
            click.echo(f"{name.replace('_', ' '):<18} {display(shown)}")
    if row.triage is not None:
        until = f" until {row.triage.until.isoformat()}" if row.triage.until else ""
        click.echo(f"{'triage':<18} {row.triage.verdict} by {display(row.triage.by)}{until}: {display(row.triage.why)}")
    click.echo("")
    table(
        ("PATH", "LINE", "COMMIT", "IN HEAD", "SCANNERS"),
        (
            (p.path, p.line, (p.commit or "")[:12], "yes" if p.in_head else "no", " ".join(p.scanners))
            for p in row.places
        ),
    )
    click.echo("")
    table(("WHEN", "WHAT", "BY", "WHY"), ((e.at.isoformat(" ", "seconds"), e.kind, e.by, e.why) for e in events))


@findings.command("export")
@filters
@click.option("--format", "form", type=click.Choice(get_args(Format)), default="json", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR", help="Write files; SARIF: one a repository.")
def export_command(*, form: Format, output: Path | None, **options: Any) -> None:
    """Export findings as JSON, JSON lines, CSV or SARIF; masked, in one order, from one moment."""
    reach = access()
    wanted = chosen(reach.now, **options)
    with reach.transaction() as conn:
        rows = with_owners(conn, findings_reads.stream_findings(conn, wanted))
        if output is None:
            done: Exported = export_to_stream(rows, form, sys.stdout, version=reach.version)
        else:
            done = export_to_folder(rows, form, output, version=reach.version)
    left_out = (
        f"; {done.left_out_fixed} fixed ones are left out, SARIF has no place for them" if done.left_out_fixed else ""
    )
    click.echo(
        f"{done.findings} findings" + (f" in {len(done.files)} files" if done.files else "") + left_out, err=True
    )


def with_owners(conn: Connection, rows: Iterable[FindingRow]) -> Iterator[Owned]:
    """Give each finding with the code owners of its first place; one repository's file is held at a time."""
    source = iter(rows)
    nobody = CodeOwners()
    while chunk := list(islice(source, _CHUNK)):
        owned = owned_targets(conn, [row.target_id for row in chunk])
        held: tuple[int, CodeOwners] = (-1, nobody)
        for row in chunk:
            if row.target_id not in owned or not row.places:
                yield row, ()
                continue
            if held[0] != row.target_id:
                held = (row.target_id, code_owners(conn, [row.target_id]).get(row.target_id, nobody))
            yield row, held[1].of(row.places[0].path)


def one_finding(conn: Connection, text: str) -> FindingRow:
    """Find the one finding that a person names. Raises ``UsageFault`` when there is none, or more than one."""
    ids: list[int] = []
    if text.isascii() and text.isdigit() and len(text) < 19:  # noqa: PLR2004 - what a bigint holds
        ids = [int(text)]
    elif len(text) >= _PREFIX_DIGITS:
        ids = findings_reads.find_by_prefix(conn, text)
        if len(ids) > 1:
            listed = ", ".join(map(str, ids))
            message = f"{len(ids)} findings have an identity that begins with {text}; name one by id: {listed}"
            raise UsageFault(message)
    row = findings_reads.get_finding(conn, ids[0]) if ids else None
    if row is None:
        message = (
            f"there is no finding {text[:80]!r}; give an id, or at least {_PREFIX_DIGITS} digits of an identity, "
            "as `resweep findings list` shows them"
        )
        raise UsageFault(message)
    return row


def _reveal(reach: FindingsAccess, text: str, *, by: str, why: str) -> None:
    """Record who sees it, then show it."""
    if not reach.allow_reveal or reach.read_blob is None or reach.identify is None:
        message = (
            "secrets are not shown here: findings.allow_reveal is off; set it in the configuration to allow it, "
            "every use is recorded"
        )
        raise UsageFault(message)
    with reach.transaction() as conn:
        row = one_finding(conn, text)
        origin = findings_reads.origin(conn, row.id)
        place = next((each for each in row.places if each.blob is not None and each.line is not None), None)
        if origin is None or place is None or place.blob is None:
            message = f"finding {row.id} has no place with a blob and a line to read it from"
            raise NotRevealed(message)
        note_reveal(conn, row.id, by=by, why=why)
    content = reach.read_blob(origin, place.blob)
    identify, rule, identity = reach.identify, row.rule, row.identity
    shown: Revealed = reveal(
        content, line=place.line, column=place.column, matches=lambda part: identify(origin, rule, part) == identity
    )
    for line in shown.text.decode("utf-8", "replace").split("\n"):
        click.echo(display(line.rstrip("\r")))
    told = "the secret" if shown.proven else "the line where it stands (the secret is not there letter by letter)"
    click.echo(f"{told}, {display(place.path)}:{place.line}; that {display(by)} saw it is recorded", err=True)


def _mark(text: str | None) -> PageMark | None:
    """Read a page mark."""
    if text is None:
        return None
    severity, _, number = text.partition(":")
    if not number.isdigit() or len(number) > 18:  # noqa: PLR2004 - what a bigint holds
        message = f"{text!r} is no mark of a page; take it from the end of the page before, such as high:1234"
        raise UsageFault(message)
    return PageMark(severity, int(number))


def _where(row: FindingRow) -> str:
    """The first place, and how many more there are."""
    if not row.places:
        return ""
    place = row.places[0]
    more = row.place_count - 1
    return f"{place.path}:{place.line or '?'}" + (f" +{more}" if more > 0 else "")


def matching(conn: Connection, wanted: FindingFilter) -> int:
    """Count what a filter means."""
    return sum(findings_reads.count_findings(conn, wanted).values())
