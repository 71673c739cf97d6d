"""``resweep health``: whether a runtime is well, for containers and service managers."""

import json
import urllib.error
import urllib.request

import click

from ...ledger import server
from ..config import is_loopback
from .frame import config_option, configuration, json_option, opened, print_document
from .main import ERROR
from .paint import say


@click.command("health")
@click.option(
    "--timeout", "seconds", type=click.FloatRange(0.1, 300), default=5.0, show_default=True, metavar="SECONDS"
)
@config_option
@json_option
def health(*, seconds: float, as_json: bool) -> None:
    """Ask the runtime on the configured address; without pages ask the database. 0 well, 1 not."""
    settings = configuration()
    listen = settings.settings.web.listen
    if listen == "off":
        with opened(settings=settings) as store, store.database.connection() as conn:
            server.moment(conn)
        status, reason, asked = "ready", None, "the database"
    else:
        url = f"http://{_reachable(listen)}/readyz"
        asked = url
        status, reason = _ask(url, seconds)
    if as_json:
        print_document({"status": status, "reason": reason, "asked": asked})
    elif status == "ready":
        click.echo("ready")
    if status != "ready":
        if not as_json:
            say(f"not well: {reason} ({asked})")
        raise click.exceptions.Exit(ERROR)


def _reachable(listen: str) -> str:
    """The address as this machine reaches it: a wildcard is listened on, never asked."""
    host, _, port = listen.rpartition(":")
    if is_loopback(listen) or host.strip("[]") not in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not listened on
        return listen
    return f"{'[::1]' if '::' in host else '127.0.0.1'}:{port}"


def _ask(url: str, seconds: float) -> tuple[str, str | None]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy: it is this machine
    try:
        with opener.open(url, timeout=seconds) as answer:
            answered = json.loads(answer.read(65536))
    except urllib.error.HTTPError as error:
        try:
            return "unavailable", str(json.loads(error.read(65536)).get("reason"))
        except ValueError:
            return "unavailable", f"it answered {error.code}"
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return "unavailable", f"nothing answers: {reason}; is `resweep up` running?"
    return str(answered.get("status")), None
