"""Runs the peers of figure 6 in a throw-away environment, so that they are no dependencies of the product."""

import subprocess
import time
import venv
from pathlib import Path

_SCRIPTS = Path(__file__).parent / "peers"
_WANTED = {
    "pgqueuer": ("pgqueuer[asyncpg]==1.6.0", "uvloop"),
    "procrastinate": ("procrastinate==3.10.*", "psycopg[binary]"),
}


def install(name: str, folder: Path) -> Path:
    """The interpreter of an environment that has the peer; made when it is missing."""
    home = folder / f"peer-{name}"
    python = home / "bin/python"
    if not python.exists():
        venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_WANTED[name]], check=True)
    return python


def fill(python: Path, name: str, url: str, jobs: int) -> None:
    """Enqueue ``jobs`` no-ops in the peer's own schema."""
    subprocess.run([python, _SCRIPTS / f"{name}_drain.py", url, "fill", str(jobs)], check=True, capture_output=True)


def drain(python: Path, name: str, url: str, batch: int, processes: int = 1) -> float:
    """Seconds until ``processes`` workers have emptied the queue, start of the interpreters not counted."""
    command = [str(python), str(_SCRIPTS / f"{name}_drain.py"), url, "drain", str(batch)]
    workers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(processes)
    ]
    seconds = [float(worker.communicate()[0].split()[-1]) for worker in workers]
    if any(worker.returncode for worker in workers):
        message = f"{name} could not drain its queue"
        raise RuntimeError(message)
    time.sleep(0.2)
    return max(seconds)
