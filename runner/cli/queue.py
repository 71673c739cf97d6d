"""``resweep queue``: look at targets, and change them. Bulk changes show their count first and are audited."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import click

from ...ledger import audit, server
from ...queue import admin, census, policy, requests
from ...queue import sources as queue_sources
from ...queue.census import Row
from ...schema.database import Connection
from ...schema.errors import UsageFault
from ...schema.text import display
from .frame import (
    DURATION,
    config_option,
    configuration,
    confirm,
    dry_run_option,
    json_option,
    limit_option,
    opened,
    print_json,
    somebody,
    transaction,
    yes_option,
)
from .paint import count, paint, say, table
from .targets import COLOURS, cells, chosen, filters, matching, narrows, one, several

_BULK = 100
Change = Callable[[Connection, Sequence[int]], int]


@click.group("queue")
def queue() -> None:
    """Look at the targets of the queue, and change them."""


@queue.command("list")
@filters
@limit_option
@click.option("--after", type=int, metavar="ID", help="Go on after this id, as the page before printed it.")
@config_option
@json_option
def list_command(*, limit: int, after: int | None, as_json: bool, **options: Any) -> None:
    """List targets, by id."""
    with transaction() as conn:
        wanted = chosen(conn, **options)
        page = census.listing(conn, wanted, after=after, limit=limit)
        total = census.count_listing(conn, wanted)
        now = server.moment(conn)
    if as_json:
        print_json(page.rows, total=total, next=page.after)
        return
    table(
        ("ID", "STATE", "SOURCE", "TARGET", "WHEN", "WHY"),
        [cells(row, now) for row in page.rows],
        right=(0,),
        codes=[COLOURS.get(row.state, "") for row in page.rows],
    )
    say(f"{len(page.rows):,} of {count(total, 'target')}" + (f"; more: --after {page.after}" if page.after else ""))


@queue.command("show")
@click.argument("target")
@click.option("--source", metavar="SOURCE")
@config_option
@json_option
def show_command(*, target: str, source: str | None, as_json: bool) -> None:
    """Show one target with everything that is known of it, and its past claims."""
    from .explain import show_target  # noqa: PLC0415 - shares its printing

    with transaction() as conn:
        row = one(conn, target, source=source)
        why = census.explain(conn, row.target_id)
        now = server.moment(conn)
    show_target(why, now, as_json=as_json, everything=True)


@queue.command("retry")
@click.argument("targets", nargs=-1)
@filters
@limit_option
@dry_run_option
@yes_option
@config_option
def retry_command(*, targets: tuple[str, ...], limit: int, dry_run: bool, yes: bool, **options: Any) -> None:
    """Start failed targets again with all their attempts: those named, or all that the filters mean."""
    options["states"] = ("failed",)
    _change(
        "retry",
        targets,
        options,
        lambda conn, ids: len(admin.retry(conn, ids)),
        limit=limit,
        dry_run=dry_run,
        yes=yes,
        alone=True,
    )


@queue.command("requeue")
@click.argument("targets", nargs=-1)
@filters
@click.option("--limit", default=_BULK, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--now", "now_flag", is_flag=True, help="Deferred targets too do not keep their time.")
@click.option("--stale-fingerprint", is_flag=True, help="Targets whose scanner or rules are of an older version.")
@dry_run_option
@yes_option
@config_option
def requeue_command(
    *,
    targets: tuple[str, ...],
    limit: int,
    now_flag: bool,
    stale_fingerprint: bool,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Ask for a scan of targets, changed or not: those named, or those that filters other than the state mean.

    A whole queue is never requeued by one word: say which targets, by names or by source, error, text or age.
    """
    if stale_fingerprint:
        _stale(options, limit=limit, dry_run=dry_run, yes=yes)
        return
    beside_state = {key: value for key, value in options.items() if key != "states"}
    if not targets and not narrows(beside_state):
        raise UsageFault(
            "say which targets: names, or filters beside the state (--source, --error-code, --name, --older-than, …)"
        )

    def change(conn: Connection, ids: Sequence[int]) -> int:
        return sum(each.accepted for each in requests.request(conn, ids, now_flag=now_flag, by=somebody()))

    _change("requeue", targets, options, change, limit=limit, dry_run=dry_run, yes=yes)


def _stale(options: dict[str, Any], *, limit: int, dry_run: bool, yes: bool) -> None:
    """Requeue what was covered by another version of its scanners."""
    from ..wiring import open_scanning  # noqa: PLC0415 - scanners are started to ask for their versions

    settings = configuration()
    if any(value not in (None, ()) for key, value in options.items() if key != "sources"):
        raise UsageFault("--stale-fingerprint goes with --source only")
    with opened(settings=settings) as store, open_scanning(settings) as scanning:
        fingerprints: dict[str, bytes] = {}
        for name, scanner in scanning.scanners.items():
            scanner.prepare(scanning.guard)
            fingerprints[name] = scanner.fingerprint()
        used = {source.name: source.scanners for source in settings.sources}
        with store.database.transaction() as conn:
            rows = [
                row
                for row in queue_sources.list_sources(conn)
                if not options["sources"] or row.name in options["sources"]
            ]
        if dry_run:
            say(f"up to {limit} targets of {count(len(rows), 'source')} would be looked at; nothing was changed")
            return
        confirm(f"up to {limit:,} targets whose scanner changed will be queued again", yes=yes)
        with store.database.transaction() as conn:
            done = 0
            for row in rows:
                names = used.get(row.name, settings.settings.defaults.scanners or ("kingfisher",))
                wanted = {name: fingerprints[name] for name in names if name in fingerprints}
                done += policy.requeue_stale(conn, row.source_id, wanted, limit=limit - done)
            audit.note(conn, who=somebody(), act="queue requeue --stale-fingerprint", object_="", changed=done)
    say(f"{count(done, 'target')} queued")


@queue.command("defer")
@click.argument("targets", nargs=-1)
@filters
@limit_option
@click.option("--by", "delay", type=DURATION, required=True, metavar="DURATION", help="Put off by this long.")
@click.option("--why", required=True, metavar="TEXT")
@dry_run_option
@yes_option
@config_option
def defer_command(
    *,
    targets: tuple[str, ...],
    limit: int,
    delay: timedelta,
    why: str,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Put waiting targets off."""
    _change(
        "defer",
        targets,
        options,
        lambda conn, ids: len(admin.defer(conn, ids, reason=why, delay=delay)),
        limit=limit,
        dry_run=dry_run,
        yes=yes,
        why=why,
    )


@queue.command("reserve")
@click.argument("targets", nargs=-1)
@filters
@limit_option
@click.option("--for", "period", type=DURATION, default="1h", show_default=True, metavar="DURATION")
@click.option("--holder", metavar="NAME", help="Who holds them (default: this user).")
@dry_run_option
@yes_option
@config_option
def reserve_command(
    *,
    targets: tuple[str, ...],
    limit: int,
    period: timedelta,
    holder: str | None,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Hold targets: no claim and no requeue touches them until the hold ends."""
    by = holder or somebody()
    _change(
        "reserve",
        targets,
        options,
        lambda conn, ids: len(admin.reserve(conn, ids, by=by, period=period)),
        limit=limit,
        dry_run=dry_run,
        yes=yes,
        why=by,
    )


@queue.command("unreserve")
@click.argument("targets", nargs=-1)
@filters
@limit_option
@click.option("--holder", metavar="NAME", help="Only what this one holds.")
@dry_run_option
@yes_option
@config_option
def unreserve_command(
    *, targets: tuple[str, ...], limit: int, holder: str | None, dry_run: bool, yes: bool, **options: Any
) -> None:
    """Let held targets go."""
    _change(
        "unreserve",
        targets,
        options,
        lambda conn, ids: len(admin.unreserve(conn, ids, by=holder)),
        limit=limit,
        dry_run=dry_run,
        yes=yes,
        keep=lambda row: row.reserved_by is not None and holder in {None, row.reserved_by},
    )


@queue.command("retire")
@click.argument("targets", nargs=-1)
@filters
@limit_option
@click.option("--why", required=True, metavar="TEXT")
@dry_run_option
@yes_option
@config_option
def retire_command(*, targets: tuple[str, ...], limit: int, why: str, dry_run: bool, yes: bool, **options: Any) -> None:
    """Stop scanning targets; rows and findings are kept, and a target that is listed again comes back."""
    _change(
        "retire",
        targets,
        options,
        lambda conn, ids: len(admin.retire(conn, ids, reason=why)),
        limit=limit,
        dry_run=dry_run,
        yes=yes,
        why=why,
    )


@queue.command("stats")
@click.option("--period", type=DURATION, default="7d", show_default=True, metavar="DURATION")
@config_option
@json_option
def stats_command(*, period: timedelta, as_json: bool) -> None:
    """What scans of each admission class brought: updated ones against new ones."""
    with transaction() as conn:
        rows = census.yields(conn, period=period)
    if as_json:
        print_json(rows)
        return
    table(
        ("SOURCE", "ADMISSION", "SCANS", "FINDINGS", "NEW", "NEW A SCAN", "SECONDS A SCAN"),
        [
            (
                row.source,
                row.admission.value,
                f"{row.scans:,}",
                f"{row.findings:,}",
                f"{row.new_findings:,}",
                f"{row.new_findings / row.scans:.2f}" if row.scans else "",
                f"{row.seconds / row.scans:.1f}" if row.scans else "",
            )
            for row in rows
        ],
        right=(2, 3, 4, 5, 6),
    )


def _change(  # noqa: PLR0913 - what the commands share, each named at its call
    act: str,
    names: Sequence[str],
    options: dict[str, Any],
    change: Change,
    *,
    limit: int,
    dry_run: bool,
    yes: bool,
    why: str = "",
    alone: bool = False,
    keep: Callable[[Row], bool] | None = None,
) -> None:
    """Find the targets, show how many, ask, change them in one transaction with the audit row."""
    filtered = narrows({key: value for key, value in options.items() if not (alone and key == "states")})
    if names and filtered:
        raise UsageFault("name targets, or say by filters which are meant; not both")
    if not names and not filtered and not alone:
        raise UsageFault("say which targets: names, or filters (--state, --source, --error-code, --older-than, …)")
    with opened() as store:
        with store.database.transaction() as conn:
            if names:
                rows, total = several(conn, names), 0
            else:
                wanted = chosen(conn, **options)
                rows, total = matching(conn, wanted, limit=limit), census.count_listing(conn, wanted)
        rows = [row for row in rows if keep is None or keep(row)]
        more = f" (of {total:,} that match; --limit)" if total > len(rows) and keep is None else ""
        if dry_run or not rows:
            for row in rows:
                click.echo(f"{row.target_id}  {row.state.value}  {display(row.display_name)}")
            say(f"{act}: {count(len(rows), 'target')}{more}; nothing was changed")
            return
        if len(rows) > 1 or not names:
            confirm(f"{act}: {count(len(rows), 'target')}{more}", yes=yes)
        with store.database.transaction() as conn:
            changed = change(conn, [row.target_id for row in rows])
            audit.note(
                conn,
                who=somebody(),
                act=f"queue {act}",
                object_=", ".join(row.name for row in rows[:20]),
                changed=changed,
                detail={"why": why, "targets": len(rows), "ids": [row.target_id for row in rows[:1000]]},
            )
    left = len(rows) - changed
    say(f"{act}: {count(changed, 'target')} changed" + (paint(f", {left:,} left as they were", "2") if left else ""))
