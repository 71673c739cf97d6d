"""What passes between a worker's thread and its keeper: files in memory, the wait for an answer, the answer."""

import contextlib
import json
import os
import select
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import IO

from .limits import Ended, ProcessResult

_CANCEL_TICK_SECONDS = 0.1


@contextlib.contextmanager
def memory_file(content: bytes | None) -> Generator[IO[bytes]]:
    """An open file that holds ``content`` and lies in memory; the null device for None."""
    if content is None:
        with Path(os.devnull).open("rb") as null:
            yield null
        return
    if hasattr(os, "memfd_create"):
        file = os.fdopen(os.memfd_create("resweep", os.MFD_CLOEXEC), "w+b", buffering=0)
    else:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by the block below
    with file:
        if content:
            file.write(content)
            file.seek(0)
        yield file


def read_start(file: IO[bytes], limit: int) -> bytes:
    """The first ``limit`` bytes of a file, wherever it was written to last."""
    fd = file.fileno()
    data = b""
    while len(data) < limit:
        part = os.pread(fd, limit - len(data), len(data))
        if not part:
            break
        data += part
    return data


def await_answer(run: socket.socket, seconds: float, cancel: threading.Event | None) -> Mapping[str, object]:
    """Read the keeper's one line; tell it when the caller's event is set."""
    give_up = time.monotonic() + seconds
    answer = b""
    told = False
    poller = select.poll()
    poller.register(run, select.POLLIN)
    while not answer.endswith(b"\n"):
        tick = _CANCEL_TICK_SECONDS if cancel is not None and not told else 5.0
        if poller.poll(tick * 1000):
            part = run.recv(65536)
            if not part:
                return {"ended": Ended.LOST, "error": "the guardian's keeper died"}
            answer += part
        elif cancel is not None and not told and cancel.is_set():
            run.sendall(b"c")
            told = True
        elif time.monotonic() > give_up:
            return {"ended": Ended.LOST, "error": f"the guardian's keeper said nothing for {seconds:.0f} s"}
    return dict(json.loads(answer))


def readable(source: socket.socket) -> bool:
    """Whether the other side has said something, or is gone."""
    poller = select.poll()
    poller.register(source, select.POLLIN)
    return bool(poller.poll(0))


def as_result(answer: Mapping[str, object]) -> ProcessResult:
    """A keeper's answer as a record. Raises ``ValueError`` or ``KeyError`` for one that no keeper gives."""

    def number(key: str) -> float:
        value = answer.get(key, 0)
        return value if isinstance(value, (int, float)) else 0

    error = answer.get("error")
    return ProcessResult(
        ended=Ended(str(answer["ended"])),
        exit_code=int(number("exit_code")) if "exit_code" in answer else -int(signal.SIGKILL),
        seconds=number("seconds"),
        cpu_seconds=number("cpu_seconds"),
        peak_memory_bytes=int(number("peak_memory_bytes")),
        peak_processes=int(number("peak_processes")),
        stragglers=int(number("stragglers")),
        left_behind=int(number("left_behind")),
        error=str(error) if error else None,
    )
