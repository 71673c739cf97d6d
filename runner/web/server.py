"""Serving in threads of this process: one server an address, closed in order with everything else."""

import errno
import logging
import socket
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import uvicorn

from ...ledger import server as ledger_server
from ...schema.clock import Clock, SystemClock
from ...schema.database import Database, first_line
from ...schema.errors import ConfigFault, ResweepError
from ..config import Configuration, is_loopback
from ..metrics import Metrics
from .access import Rules
from .app import make_app

_BACKLOG = 128
_CONNECTIONS = 200
_END_SECONDS = 5
_START_SECONDS = 20.0
_TICK_SECONDS = 0.02


class AddressTaken(ConfigFault):
    """Another program listens on the address already."""


@contextmanager
def serve(
    configuration: Configuration, *, metrics: Metrics, database: Database
) -> Generator[tuple[str, ...], None, None]:
    """Serve pages and metrics on the configured addresses; gives their URLs. Raises ``ConfigFault``, ``OSError``."""
    web = configuration.settings.web.listen
    apart = configuration.settings.metrics.listen
    together = apart is None or apart == web
    tokens = _tokens(configuration)
    clock = SystemClock()

    def ready() -> str | None:
        try:
            with database.connection() as conn:
                ledger_server.moment(conn)
        except Exception as error:  # noqa: BLE001 - whatever it is, the answer is: not ready
            return f"the database does not answer: {first_line(error)}"
        return None

    wanted = [] if web == "off" else [(web, True, together)]
    if not together and apart is not None and apart != "off":
        wanted.append((apart, False, True))
    with ExitStack() as stack:
        urls: list[str] = []
        for listen, probes, with_metrics in wanted:
            rules = Rules(
                host=_split(listen)[0],
                loopback=is_loopback(listen),
                tokens=tokens if not is_loopback(listen) or configuration.settings.web.require_login else (),
            )
            app = make_app(
                metrics=metrics if with_metrics else None, probes=probes, ready=ready, rules=rules, clock=clock
            )
            urls.append(stack.enter_context(_served(app, listen, clock)))
        yield tuple(urls)


def _tokens(configuration: Configuration) -> tuple[str, ...]:
    web = configuration.settings.web
    found = [
        configuration.secret(variable=None, file=file, what=what)
        for file, what in (
            (web.viewer_token_file, "web.viewer_token_file"),
            (web.operator_token_file, "web.operator_token_file"),
        )
    ]
    return tuple(token for token in found if token)


@contextmanager
def _served(app: object, listen: str, clock: Clock) -> Generator[str, None, None]:
    host, port = _split(listen)
    try:
        sock = _bound(host, port)
    except OSError as error:
        kind = AddressTaken if error.errno == errno.EADDRINUSE else ConfigFault
        raise kind(
            f"{listen} cannot be listened on: {error.strerror or error}; is another runtime running? set web.listen to "
            "another address, or start with --no-web"
        ) from error
    settings = uvicorn.Config(
        app,  # type: ignore[arg-type]
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        backlog=_BACKLOG,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=_END_SECONDS,
        h11_max_incomplete_event_size=16 << 10,
        ws="none",
    )
    server = uvicorn.Server(settings)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, name="web", daemon=True)
    thread.start()
    ends = clock.monotonic() + _START_SECONDS
    while not server.started:
        if not thread.is_alive() or clock.monotonic() > ends:
            raise ResweepError(f"the web server on {listen} did not start")
        clock.sleep(_TICK_SECONDS)
    real = sock.getsockname()[1]
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{real}"
    finally:
        server.should_exit = True
        thread.join(_END_SECONDS + 2.0)
        sock.close()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _split(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0
