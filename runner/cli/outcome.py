"""How a run's summary is printed."""

import sys

import click

from ...schema.text import display
from ..screen import size_words
from ..summary import Summary
from .frame import print_document
from .paint import BAD, DIM, GOOD, STRONG, WARN, count, duration, paint

_SEVERITIES = (("critical", BAD), ("high", BAD), ("medium", WARN), ("low", ""), ("info", DIM))
_SHOWN = 15


def print_summary(summary: Summary, *, as_json: bool) -> None:
    """Print what a run did, what was found, and what is left with the reason; on stdout: it is the run's result."""
    if as_json:
        print_document({"summary": summary, "partial": summary.partial})
        return
    total = sum(number for state, number in summary.targets.items() if state != "retired")
    done = summary.targets.get("done", 0)
    _line("targets", f"{count(total, 'target')}, {done:,} covered" if total else "none found")
    admitted = [f"{summary.queued_new:,} new"] if summary.queued_new else []
    admitted += [f"{summary.queued_updated:,} changed"] if summary.queued_updated else []
    if admitted:
        _line("admitted", ", ".join(admitted))
    if summary.scanned_targets:
        read = f", {size_words(summary.read_bytes)} read" if summary.read_bytes else ""
        outcomes = ", ".join(f"{number:,} {word}" for word, number in _ordered(summary.scans) if number)
        _line(
            "scanned", f"{count(summary.scanned_targets, 'target')} in {duration(summary.seconds)}{read} ({outcomes})"
        )
    else:
        _line(
            "scanned", f"nothing: everything was covered already ({duration(summary.seconds)})" if done else "nothing"
        )
    if summary.not_scanned:
        left_out = ", ".join(
            f"{number:,} {reason.replace('_', ' ')}" for reason, number in sorted(summary.not_scanned.items())
        )
        _line("left out", left_out)
    _findings(summary)
    _left(summary)


def _findings(summary: Summary) -> None:
    if not summary.findings:
        _line("findings", paint("none open", GOOD))
        return
    parts = [
        paint(f"{summary.open_findings[severity]:,} {severity}", code)
        for severity, code in _SEVERITIES
        if summary.open_findings.get(severity)
    ]
    fresh = f", {summary.new_findings:,} new" if summary.new_findings else ""
    _line("findings", f"{summary.findings:,} open{fresh}: {', '.join(parts)}")
    click.echo(paint("            resweep findings list", DIM))


def _left(summary: Summary) -> None:
    for sentence in summary.cycles_trouble:
        _line("discovery", paint(display(sentence), WARN))
    if summary.changed_waiting:
        _line("waiting", f"{count(summary.changed_waiting, 'changed target')} wait for the cap of the next cycle")
    if summary.left_count:
        words = ", ".join(
            f"{summary.targets[state]:,} {state.replace('_', ' ')}"
            for state in ("pending", "in_progress", "deferred", "failed", "unresolved")
            if summary.targets.get(state)
        )
        _line("not done", paint(words, WARN))
    for left in summary.left[:_SHOWN]:
        reason = f"{left.code}: {left.message}" if left.message else left.code
        click.echo(f"            {display(left.display_name or left.name, 60)}  {display(reason, 400)}")
    more = summary.left_count - min(len(summary.left), _SHOWN)
    if more > 0:
        click.echo(paint(f"            and {more:,} more: resweep queue list --state failed", DIM))
    if summary.lost_leases:
        _line("leases", paint(f"{summary.lost_leases:,} lost while scans ran", WARN))


def _ordered(scans: dict[str, int]) -> list[tuple[str, int]]:
    words = {"findings": "with findings"}
    order = ("findings", "clean", "unchanged", "empty", "limited", "failed")
    return [(words.get(name, name), scans[name]) for name in order if name in scans]


def _line(head: str, text: str) -> None:
    click.echo(f"{paint(f'{head:<10}', STRONG, sys.stdout)}  {text}")
