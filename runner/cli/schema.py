"""``resweep schema``: bring the database to this program's schema, or show where it is."""

import click

from ...schema import migrate
from ...schema.errors import SchemaMismatch
from .frame import config_option, json_option, opened, print_json
from .main import ERROR
from .paint import BAD, WARN, count, say, table


@click.group("schema")
def schema() -> None:
    """Apply the database's schema, or show its state."""


@schema.command("apply")
@config_option
@json_option
def schema_apply(*, as_json: bool) -> None:
    """Apply what is missing; doing it twice changes nothing. Stop running workers of an older release first."""
    applied: list[str] = []
    with opened(schema="none") as store:
        applied = migrate.apply(store.direct_url)
    if as_json:
        print_json([{"name": name} for name in applied])
        return
    for name in applied:
        click.echo(name)
    say(f"{count(len(applied), 'migration')} applied" if applied else "the schema is up to date; nothing was changed")


@schema.command("status")
@config_option
@json_option
def schema_status(*, as_json: bool) -> None:
    """Show every migration that the database or this program knows; 1 unless all are applied."""
    with opened(schema="none") as store:
        states = migrate.status(store.direct_url)
    if as_json:
        print_json(states)
    else:
        table(
            ("NUMBER", "NAME", "STATE", "APPLIED"),
            [
                (s.number, s.name, s.state, s.applied_at.isoformat(" ", "seconds") if s.applied_at else "")
                for s in states
            ],
            right=(0,),
            codes=[{"pending": WARN, "edited": BAD, "unknown": BAD}.get(s.state, "") for s in states],
        )
    odd = [each for each in states if each.state in {"edited", "unknown"}]
    if odd:
        raise SchemaMismatch(f"migration {odd[0].name} is {odd[0].state}; use the release that made this database")
    if any(each.state == "pending" for each in states):
        say("not up to date: run `resweep schema apply`")
        raise click.exceptions.Exit(ERROR)
