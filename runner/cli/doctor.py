"""``resweep doctor``: every check, what is wrong first to the eye, the exit code by the worst."""

import click

from ...schema.clock import SystemClock
from ...schema.errors import ConfigFault
from ...schema.text import display
from ..doctor import Diagnosis, Level, examine
from .frame import config_option, configuration, json_option, print_json
from .main import ERROR, PARTIAL
from .main import GOOD as EXIT_GOOD
from .paint import BAD, DIM, GOOD, WARN, count, paint, say

_MARKS = {Level.GOOD: ("good", GOOD), Level.WARNING: ("warning", WARN), Level.FAILURE: ("failure", BAD)}
_EXITS = {Level.GOOD: EXIT_GOOD, Level.WARNING: PARTIAL, Level.FAILURE: ERROR}


@click.command("doctor")
@click.option("--no-scanners", is_flag=True, help="Do not let the scanners prove themselves (saves seconds).")
@config_option
@json_option
def doctor(*, no_scanners: bool, as_json: bool) -> None:
    """Look for what is wrong with this deployment. 0 all is well, 3 warnings, 1 failures."""
    found: list[Diagnosis] = []
    try:
        settings = configuration()
    except ConfigFault as fault:
        found = [Diagnosis(check="settings", level=Level.FAILURE, message=str(fault), advice="`resweep config check`")]
        if not as_json:
            _show(found[0])
    else:
        for diagnosis in examine(settings, clock=SystemClock(), scanners=not no_scanners):
            found.append(diagnosis)
            if not as_json:
                _show(diagnosis)
    worst = max((each.level for each in found), default=Level.GOOD)
    if as_json:
        print_json(
            [
                {"check": each.check, "level": each.level.name.lower(), "message": each.message, "advice": each.advice}
                for each in found
            ],
            worst=worst.name.lower(),
        )
    else:
        warnings = sum(each.level is Level.WARNING for each in found)
        failures = sum(each.level is Level.FAILURE for each in found)
        say(f"{count(len(found), 'check')}: {count(failures, 'failure')}, {count(warnings, 'warning')}")
    raise click.exceptions.Exit(_EXITS[worst])


def _show(diagnosis: Diagnosis) -> None:
    word, code = _MARKS[diagnosis.level]
    for number, line in enumerate(diagnosis.message.splitlines() or [""]):
        head = f"{paint(f'{word:<8}', code)}{diagnosis.check:<16}" if number == 0 else " " * 24
        click.echo(f"{head}{display(line)}")
    if diagnosis.advice:
        click.echo(f"{'':<24}{paint(display(diagnosis.advice), DIM)}")
