"""``resweep explain``: why a target is where it is, and what happens to it next, in words."""

from datetime import datetime

import click

from ...ledger import server
from ...queue import census
from ...queue.census import Past, Why
from ...schema.text import display
from .frame import config_option, json_option, print_document, transaction
from .paint import BAD, GOOD, STRONG, WARN, count, duration, moment, paint, table, yet
from .targets import one

_COLOURS = {
    "covered": GOOD,
    "scanning": GOOD,
    "failed": BAD,
    "unresolved": BAD,
    "lease_expired": WARN,
    "deferred": WARN,
    "backing_off": WARN,
    "source_paused": WARN,
}


@click.command("explain")
@click.argument("target")
@click.option("--source", metavar="SOURCE", help="Where the name is looked for.")
@config_option
@json_option
def explain(*, target: str, source: str | None, as_json: bool) -> None:
    """Say why TARGET (a name, a part of it, or an id) is where it is, and when it is scanned next."""
    with transaction() as conn:
        row = one(conn, target, source=source)
        why = census.explain(conn, row.target_id)
        now = server.moment(conn)
    show_target(why, now, as_json=as_json, everything=False)


def show_target(why: Why | None, now: datetime, *, as_json: bool, everything: bool) -> None:
    """Print one target: the sentence first, then what it rests on."""
    if why is None:
        return
    if as_json:
        print_document(
            {
                "target": why.row,
                "why": {"code": why.code, "text": sentence(why, now), "next_at": why.next_at, "ahead": why.ahead},
                "history": why.history,
            }
        )
        return
    row = why.row
    click.echo(
        f"{paint(display(row.display_name), STRONG)}  {paint(why.code.replace('_', ' '), _COLOURS.get(why.code, ''))}"
    )
    click.echo(sentence(why, now))
    click.echo("")
    facts: list[tuple[str, object]] = [
        ("id", row.target_id),
        ("source", f"{row.source} ({row.kind})"),
        ("name", row.name if row.name != row.display_name else ""),
        ("address", row.address if row.address != row.name else ""),
        ("state", row.state.value),
        ("admission", row.admission.value),
        ("last change seen", _time(row.remote_modified_at, now)),
        ("last scan began", _time(row.scan_started_at, now)),
        ("last completed", _time(row.completed_at, now)),
        (
            "last error",
            f"{row.last_error_code} ({moment(row.last_error_at, now)}): {row.last_error}"
            if row.last_error_code
            else "",
        ),
    ]
    if everything:
        facts += [
            ("provider id", row.provider_id or ""),
            ("priority", row.priority),
            ("attempts", row.attempts),
            ("deferrals", row.deferrals),
            ("not before", _time(row.not_before, now)),
            (
                "lease",
                f"{row.lease_owner}, token {row.lease_token}, until {_time(row.lease_expires_at, now)}"
                if row.lease_owner
                else "",
            ),
            ("requested", _time(row.requested_at, now)),
            ("reserved", f"by {row.reserved_by}, until {_time(row.reserved_until, now)}" if row.reserved_by else ""),
            ("recheck", _time(row.recheck_at, now)),
            ("former names", ", ".join(row.former_names)),
            ("discovered", _time(row.discovered_at, now)),
            ("attributes", ", ".join(f"{key}={value}" for key, value in row.attributes.items())),
        ]
    for name, value in facts:
        if value not in ("", None):
            click.echo(f"  {name:<17} {display(str(value))}")
    if why.history:
        click.echo("")
        table(
            ("CLAIM", "ENDED", "TOOK", "WHY", "OUTCOME", "RESULT", "FINDINGS", "ERROR"),
            [_past(past, now) for past in why.history],
            right=(0, 2, 6),
        )


def sentence(why: Why, now: datetime) -> str:  # noqa: C901, PLR0911, PLR0912 - one branch a code, and the codes are a closed set
    """The answer in one or two sentences."""
    row, at = why.row, moment(why.next_at, now)
    match why.code:
        case "covered":
            again = f" It is looked at once more {at}, after the provider's blind window." if why.next_at else ""
            covered = moment(row.completed_at, now)
            return f"Everything that is known of it was covered {covered}; it is scanned again when it changes.{again}"
        case "changed_waiting":
            return (
                f"It changed {moment(row.changed_at, now)}, after its last scan, and waits for the cap of its source's "
                "next cycle; `resweep queue requeue` asks for it at once."
            )
        case "waiting":
            before = (
                "It is next in its source"
                if not why.ahead
                else f"{count(why.ahead, 'target')} of its source are before it"
            )
            more = "+" if (why.ahead or 0) >= 10_000 else ""  # noqa: PLR2004 - counted up to there
            last = f" Its last attempt ({row.attempts}) ended with {row.last_error_code}." if row.attempts else ""
            return (
                f"It waits for a free worker, because it is {_because(why)}.{last} {before}{more}. "
                "Is a runtime or `resweep work` running?"
            )
        case "backing_off":
            return f"Attempt {row.attempts} ended with {row.last_error_code or 'no result'}; it is tried again {at}."
        case "deferred":
            return f"It was put off by a rule ({row.deferred_reason}) and is tried again {at}; no attempt was counted."
        case "scanning":
            began = moment(row.scan_started_at, now)
            return f"A worker scans it since {began} (attempt {row.attempts}); its lease is renewed."
        case "lease_expired":
            return "Its worker has not renewed its lease and is taken for dead; the next sweep hands it out again."
        case "source_paused":
            until = f"for {yet(why.next_at, now)}" if why.next_at else "until somebody resumes it"
            return f"Its source {row.source} is paused {until}; `resweep sources list` says why."
        case "reserved":
            return f"It is held by {row.reserved_by} for {yet(row.reserved_until, now)}; nothing claims it before."
        case "failed":
            return (
                f"It failed for good: {row.last_error_code}: {row.last_error}. It is not tried again by itself; "
                f"`resweep queue retry {row.target_id}` starts it again."
            )
        case "unresolved":
            return f"Its identity is not settled: {row.unresolved_reason}. It is scanned when that is."
        case "retired":
            return f"It is no longer scanned ({row.retire_reason}); its findings are kept. Listed again, it comes back."
        case _:
            return why.code


def _because(why: Why) -> str:
    return {
        "new": "new",
        "updated": "changed since its last scan",
        "requested": "asked for by somebody",
        "reconcile": "covered by an older version of its scanners",
    }[why.row.admission.value]


def _time(at: datetime | None, now: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC ({moment(at, now)})" if at else ""


def _past(past: Past, now: datetime) -> tuple[object, ...]:
    error = f"{past.error_code}: {past.error}" if past.error_code and past.error else past.error_code or ""
    return (
        past.lease_token,
        moment(past.finished_at, now),
        duration(past.finished_at - past.claimed_at),
        past.admission.value,
        past.outcome,
        past.result,
        f"{past.findings:,}" if past.findings else "",
        error,
    )
