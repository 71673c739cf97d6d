"""A git server on loopback: smart HTTP by ``git http-backend``, passwords, and refs that no git would advertise."""

import base64
import os
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass(slots=True)
class GitServer:
    """What the server serves and what it was asked."""

    root: Path
    url: str = ""
    password: str | None = None  # basic authentication for everything when set
    status: int | None = None  # answer everything with this status
    refs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])  # path to a made-up protocol 0 advertisement
    asked: list[str] = field(default_factory=list[str])


@contextmanager
def serve(root: Path) -> Generator[GitServer, None, None]:
    """Serve every repository below ``root`` until the block ends."""
    server = GitServer(root=root)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, server, b"")

        def do_POST(self) -> None:
            _answer(self, server, self.rfile.read(int(self.headers.get("Content-Length", "0"))))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            del format, args

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def packet(line: bytes) -> bytes:
    """One pkt-line."""
    return b"%04x" % (len(line) + 4) + line


def _answer(handler: BaseHTTPRequestHandler, server: GitServer, body: bytes) -> None:
    path, _, query = handler.path.partition("?")
    server.asked.append(path)
    if server.status is not None:
        handler.send_error(server.status)
        return
    if server.password is not None:
        expected = "Basic " + base64.b64encode(f"user:{server.password}".encode()).decode()
        if handler.headers.get("Authorization") != expected:
            handler.send_response(401)
            handler.send_header("WWW-Authenticate", 'Basic realm="test"')
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
    made_up = server.refs.get(path.removesuffix("/info/refs"))
    if made_up is not None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
        handler.send_header("Content-Length", str(len(made_up)))
        handler.end_headers()
        handler.wfile.write(made_up)
        return
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_PROJECT_ROOT": str(server.root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "REQUEST_METHOD": handler.command,
        "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
        "HTTP_CONTENT_ENCODING": handler.headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": handler.headers.get("Git-Protocol", ""),
        "REMOTE_ADDR": "127.0.0.1",
    }
    result = subprocess.run(["git", "http-backend"], env=environment, input=body, capture_output=True, check=False)
    head, _, content = result.stdout.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
    handler.send_response(int(headers.pop("Status", "200").split()[0]))
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)
