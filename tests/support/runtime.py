"""A real runtime as a subprocess: the command line as people start it, on a database of the test's own."""

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from resweep.runner.scanners.process import Guard
from tests.support.processes import RULE_CACHE, kingfisher

COMMAND = (sys.executable, "-m", "resweep.runner")
_DSN = "TEST_DATABASE_DSN"  # named by RESWEEP_DATABASE__URL_ENV, as an operator would name a secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.stdout)


@dataclass(slots=True, kw_only=True)
class Deployment:
    """A data folder and a database: what several processes of one deployment share."""

    folder: Path
    database_url: str | None
    extra: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def data_dir(self) -> Path:
        """Everything local lies here."""
        return self.folder / "data"

    def environment(self, **extra: str) -> dict[str, str]:
        """The whole environment of a command: nothing of the test run's own settings reaches it."""
        kept = {name: value for name, value in os.environ.items() if name in {"PATH", "TMPDIR", "PYTHONPATH", "LANG"}}
        given = {"RESWEEP_DATABASE__URL_ENV": _DSN, _DSN: self.database_url} if self.database_url else {}
        return {
            **kept,
            "HOME": str(self.folder),
            "RESWEEP_DATA_DIR": str(self.data_dir),
            "RESWEEP_WEB__LISTEN": "127.0.0.1:0",
            **given,
            **self.extra,
            **extra,
        }

    def run(self, *arguments: str, seconds: float = 120.0, stdin: str | None = None, **extra: str) -> Result:
        """Run a command to its end."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            env=self.environment(**extra),
            cwd=self.folder,
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return Result(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    @contextlib.contextmanager
    def started(self, *arguments: str, **extra: str) -> Generator["Running", None, None]:
        """Start a command that goes on; it is killed at the end of the block if it still runs."""
        log = self.folder / f"log-{len(list(self.folder.glob('log-*')))}.jsonl"
        with log.open("w") as written:
            running = Running(_start([*COMMAND, *arguments], self.environment(**extra), self.folder, written), log)
        try:
            yield running
        finally:
            if running.process.poll() is None:
                running.process.kill()
            running.process.communicate(timeout=30)  # also closes its pipe


def _start(command: list[str], environment: Mapping[str, str], cwd: Path, log: TextIO) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command, env=dict(environment), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
    )


class Running:
    """A command that goes on, and what it logged so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Whole lines of the log."""
        return [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool], *, seconds: float = 90.0) -> dict[str, Any]:
        """The first line of the log that is wanted; fails with the whole log when none comes."""
        ends = time.monotonic() + seconds
        while True:
            over = self.process.poll() is not None
            for line in self.lines:
                if wanted(line):
                    return line
            if over or time.monotonic() > ends:
                raise AssertionError(f"no such line (exit {self.process.poll()}):\n{self._log.read_text()}")
            time.sleep(0.05)

    def wait_ready(self, seconds: float = 90.0) -> "Running":
        """Wait until the start is over."""
        self.wait_for(lambda line: line.get("code") == "ready", seconds=seconds)
        return self

    @property
    def url(self) -> str:
        """Where its pages are served."""
        said = self.wait_for(lambda line: line.get("code") == "serving")["event"]
        return str(said).removeprefix("serving ")

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def ended(self, seconds: float = 60.0) -> int:
        """Wait for its end; gives the exit code."""
        self.process.communicate(timeout=seconds)
        return self.process.returncode

    def stop(self, seconds: float = 60.0) -> int:
        """End it in order."""
        self.signal(signal.SIGTERM)
        return self.ended(seconds)


def deployment(folder: Path, database_url: str | None, **extra: str) -> Deployment:
    """A deployment in ``folder``, with kingfisher's rules compiled already: that takes ten seconds of a processor."""
    rules = folder / "data" / "rules"
    cache = rules / "kingfisher"
    cache.mkdir(parents=True)
    _compile_rules()
    for compiled in RULE_CACHE.iterdir():  # a folder that is a link is refused by the scanner, files may be shared
        (cache / compiled.name).hardlink_to(compiled)
    shutil.copy(RULE_CACHE.with_name(f"{RULE_CACHE.name}.warm"), rules / "kingfisher.warm")
    cache.chmod(0o500)
    return Deployment(folder=folder, database_url=database_url, extra=dict(extra))


@functools.cache
def _compile_rules() -> None:
    """Once for all test runs of this user."""
    with tempfile.TemporaryDirectory() as folder, Guard(Path(folder)) as guard:
        kingfisher().prepare(guard)
