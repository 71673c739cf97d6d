"""``resweep``: the frame of the command line. Commands are loaded when they are called, so that ``--help`` is quick.

Errors end here: every fault says what, where, why and what next, on stderr, with the product's exit codes and
without a traceback (product.md, "Command line").
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

GOOD, ERROR, USAGE, PARTIAL, FINDINGS, INTERRUPTED = 0, 1, 2, 3, 10, 130
_PRECEDENCE = (INTERRUPTED, USAGE, ERROR, FINDINGS, PARTIAL, GOOD)

# Name: (module below this package, attribute, what it does). The help is written here so that listing it loads nothing.
COMMANDS = {
    "up": ("up", "up", "Run the whole runtime in the foreground."),
    "work": ("up", "work", "Run a worker pool only: what more machines run."),
    "discover": ("discover", "discover", "Run one discovery cycle now."),
    "scan": ("scan", "scan", "Scan targets now and print their findings."),
    "status": ("status", "status", "Show the state at a glance."),
    "explain": ("explain", "explain", "Say why a target is where it is and when it is scanned next."),
    "sources": ("sources", "sources", "List, check, pause and resume sources."),
    "queue": ("queue", "queue", "List, show and change targets of the queue."),
    "cycles": ("cycles", "cycles", "List and show discovery cycles."),
    "runs": ("cycles", "runs", "List and show other passes."),
    "findings": ("findings", "findings", "List, show, triage and export findings."),
    "schema": ("schema", "schema", "Apply the database's schema, or show its state."),
    "config": ("configuration", "config", "Check and show the configuration."),
    "doctor": ("doctor", "doctor", "Look for what is wrong with this deployment."),
    "health": ("health", "health", "Ask a running runtime whether it is well."),
    "version": ("version", "version", "Show versions."),
    "completion": ("completion", "completion", "Print the completion script of a shell."),
}


class Lazy(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of use."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f".{entry[0]}", __package__)
        command: click.Command = getattr(module, entry[1])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest a command for a misspelt one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(unknown_command(args[0], COMMANDS))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry[2]) for name, entry in COMMANDS.items()])


def unknown_command(name: str, known: Any) -> str:
    """What to say about a command that does not exist."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for a mistake

    from ...schema.text import display  # noqa: PLC0415 - as above

    close = get_close_matches(name, list(known), n=1)
    hint = f"did you mean {close[0]}?" if close else "`resweep --help` lists them"
    return f"there is no command '{display(name, 60)}'; {hint}"


@click.group(
    cls=Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Two commands to begin with: `resweep up git:.` watches every repository below this folder, "
    "`resweep scan git:.` scans them once and prints what was found.",
)
@click.option("--config", "config_file", metavar="FILE", help="Configuration (else RESWEEP_CONFIG, else resweep.toml).")
@click.version_option(None, "--version", package_name="resweep", prog_name="resweep", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, config_file: str | None) -> None:
    """Find every repository you care about, scan it, and scan it again only when it changed."""
    ctx.meta["resweep.config"] = config_file


def worst(codes: Sequence[int]) -> int:
    """The exit code of several outcomes: 130, 2, 1, 10, 3, 0 in this order."""
    return min(codes or (GOOD,), key=_PRECEDENCE.index)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code of the process."""
    code = run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _quiet_stdout()
    return code


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code and prints every fault."""
    try:
        result = cli.main(
            args=list(arguments) if arguments is not None else None, prog_name="resweep", standalone_mode=False
        )
    except click.exceptions.Exit as end:
        return end.exit_code
    except SystemExit as end:  # click's own answer to a reader that went away, and the end of a completion
        gone = type(sys.stdout).__name__.endswith("PacifyFlushWrapper")
        return GOOD if gone else end.code if isinstance(end.code, int) else ERROR
    except click.Abort:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as fault:
        return _refused(fault)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        _quiet_stdout()
        return GOOD
    except Exception as fault:  # noqa: BLE001 - the outermost loop of the program: no traceback reaches a person
        return _failed(fault)
    return result if isinstance(result, int) else GOOD


def _refused(fault: click.ClickException) -> int:
    if isinstance(fault, click.UsageError):
        if fault.ctx is not None:
            click.echo(fault.ctx.get_usage(), err=True)
        click.echo(f"resweep: {fault.format_message()}", err=True)
        return USAGE
    click.echo(f"resweep: {fault.format_message()}", err=True)
    return fault.exit_code


def _failed(fault: Exception) -> int:
    from ...schema.database import first_line, retryable  # noqa: PLC0415 - loads psycopg, for a fault only
    from ...schema.errors import ResweepError, UsageFault  # noqa: PLC0415 - as above
    from ...schema.text import display  # noqa: PLC0415 - as above
    from ..log import REDACTION  # noqa: PLC0415 - as above

    def shown(text: str) -> str:
        return "\n".join(display(line) for line in REDACTION.text(text).splitlines())

    if os.environ.get("RESWEEP_LOG__LEVEL") == "debug":
        import traceback  # noqa: PLC0415 - only when somebody looks for a fault

        click.echo(shown("".join(traceback.format_exception(fault))), err=True)
    if isinstance(fault, UsageFault):
        click.echo(f"resweep: {shown(str(fault))}", err=True)
        return USAGE
    if isinstance(fault, ResweepError):
        click.echo(f"resweep: {shown(str(fault))}", err=True)
        return ERROR
    if retryable(fault):
        text = f"the database cannot be used now: {first_line(fault)}; `resweep doctor` looks closer"
    elif isinstance(fault, OSError):
        where = f"{fault.filename}: " if fault.filename else ""
        text = f"{where}{fault.strerror or fault}"
    else:
        text = (
            f"{type(fault).__name__}: {first_line(fault)}. This is a fault of resweep: run it again with "
            "RESWEEP_LOG__LEVEL=debug and report what it prints"
        )
    click.echo(f"resweep: {shown(text)}", err=True)
    return ERROR


def _quiet_stdout() -> None:
    """Whoever read our output is gone (``| head``): what is still buffered must not raise at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
