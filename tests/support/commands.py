"""A command runner for tests: real programs, whole output, no guard. It counts what it started."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from resweep.sources.base import CommandResult


class PlainRunner:
    """Runs programs as a ``CommandRunner`` does; ``started`` keeps every argv."""

    def __init__(self) -> None:
        """Nothing started yet."""
        self.started: list[tuple[str, ...]] = []
        self._guard = threading.Lock()

    def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        seconds: float,
        output_limit_bytes: int,
        stdin: bytes | None = None,
    ) -> CommandResult:
        """Run ``argv`` to its end, or kill its whole session after ``seconds``."""
        with self._guard:
            self.started.append(tuple(argv))
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        timed_out = False
        try:
            stdout, stderr = process.communicate(stdin or b"", timeout=seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
        return CommandResult(
            exit_code=process.returncode,
            stdout=stdout[:output_limit_bytes],
            stderr=stderr[:output_limit_bytes],
            timed_out=timed_out,
            truncated=max(len(stdout), len(stderr)) > output_limit_bytes,
        )
