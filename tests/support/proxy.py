"""A TCP proxy in front of PostgreSQL that breaks connections at a chosen moment: a network's faults, made to order."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_CHUNK = 65536


class Fault(Enum):
    """What happens to the next statement that holds the watched words."""

    LOSE_ANSWER = auto()
    """It reaches the server and is done there; the answer is thrown away and the connection is cut."""
    LOSE_STATEMENT = auto()
    """It never reaches the server; the connection is cut."""
    HOLD = auto()
    """It is kept back, the client waits; ``release`` sends it on, also when the client gave up long ago."""


class Proxy:
    """Passes bytes on to the server of ``conninfo`` (a socket folder or a host) until it is told not to.

    ``url`` is the same database by way of the proxy, without TLS: the words of statements must be readable.
    """

    def __init__(self, conninfo: str) -> None:
        """Begin to listen; serves from threads until ``close``."""
        parts = conninfo_to_dict(conninfo)
        self._host, self._port = str(parts.get("host") or "127.0.0.1"), int(parts.get("port") or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = make_conninfo(conninfo, host="127.0.0.1", port=self.port, sslmode="disable")
        self._lock = threading.Lock()
        self._armed: tuple[bytes, Fault] | None = None
        self.faults = 0
        self._open: set[socket.socket] = set()
        self._passing = threading.Event()
        self._passing.set()
        self._released = threading.Event()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def arm(self, words: bytes, fault: Fault) -> None:
        """Let ``fault`` happen once, to the next statement that holds ``words``."""
        with self._lock:
            self._armed = (words, fault)

    def freeze(self) -> None:
        """Pass nothing on, in neither direction, and cut nothing: a network that swallows everything."""
        self._passing.clear()

    def thaw(self) -> None:
        """Pass on again, what was held back first."""
        self._passing.set()

    def release(self) -> None:
        """Send on the statement that was held."""
        self._released.set()

    def cut(self) -> None:
        """Reset every connection there is; new ones are served."""
        with self._lock:
            gone, self._open = self._open, set()
        for each in gone:
            _end(each)

    def close(self) -> None:
        """Listen no more, cut everything."""
        _end(self._listener)
        self.thaw()
        self.release()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    server = self._reach()
                except OSError:  # the server is away: the client sees a connection that ends at once
                    _end(client)
                    continue
                losing = threading.Event()
                with self._lock:
                    self._open |= {client, server}
                for work in (self._forth, self._back):
                    threading.Thread(target=work, args=(client, server, losing), name="proxy", daemon=True).start()

    def _reach(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, self._port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(Path(self._host) / f".s.PGSQL.{self._port}"))
        return server

    def _forth(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(_CHUNK):
                self._passing.wait()
                fault = self._struck(data)
                if fault is Fault.LOSE_STATEMENT:
                    break
                if fault is Fault.HOLD:
                    self._released.wait()
                if fault is Fault.LOSE_ANSWER:
                    losing.set()
                server.sendall(data)
        if not losing.is_set():  # else the other direction ends it, when the server has answered
            self._end_both(client, server)

    def _back(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK):
                self._passing.wait()
                if losing.is_set():
                    break
                client.sendall(data)
        self._end_both(client, server)

    def _struck(self, data: bytes) -> Fault | None:
        with self._lock:
            if self._armed is None or self._armed[0] not in data:
                return None
            fault, self._armed = self._armed[1], None
            self.faults += 1
            return fault

    def _end_both(self, *ends: socket.socket) -> None:
        with self._lock:
            self._open -= set(ends)
        for each in ends:
            _end(each)


@contextmanager
def proxied(conninfo: str) -> Generator[Proxy, None, None]:
    """A proxy in front of ``conninfo``'s server, closed at the end of the block."""
    proxy = Proxy(conninfo)
    try:
        yield proxy
    finally:
        proxy.close()


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
