"""Prepares the virtual environment the scripts run in: made once, filled from hashed lists, kept while nothing changed.

Run by ``start_runtime.sh``, ``start_runtime.ps1`` and ``run_tests.sh`` with any Python 3.11 or newer, before anything
is installed: the standard library is all there is. Data goes to stdout (the environment's interpreter, one line), talk
to stderr. Exit codes: 0 ready, 1 not ready and stderr says why, 2 called wrongly. ``--ready`` changes nothing and only
answers.
"""

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".venv"
LISTS: Mapping[str, str] = {"product": "requirements.txt", "dev": "requirements-dev.txt"}
"""What may be asked for, and the hashed list that fills it; ``dev`` holds all of ``product`` at the same versions."""
NEEDED = (3, 11)
PIP = ("-I", "-m", "pip", "--disable-pip-version-check", "--no-input")


class NotReady(Exception):
    """The environment can't be had; the text says what, why and what to do next."""


def main(arguments: list[str]) -> int:
    """Prepare what ``arguments`` name (one of ``LISTS``) and print the interpreter to run."""
    only_look = arguments[:1] == ["--ready"]
    kinds = arguments[1:] if only_look else arguments
    if len(kinds) != 1 or kinds[0] not in LISTS:
        print(f"usage: environment.py [--ready] {'|'.join(LISTS)}", file=sys.stderr)
        return 2
    if only_look:
        ready = _is_ready(kinds[0], interpreter())
        if ready:
            print(interpreter())
        return 0 if ready else 1
    try:
        print(prepare(kinds[0]))
    except NotReady as error:
        print(f"resweep: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("resweep: interrupted; the next start goes on where this one stopped", file=sys.stderr)
        return 130
    return 0


def prepare(kind: str) -> Path:
    """Return the interpreter of an environment that holds the list ``kind``; make or renew it when it does not.

    Starts at the same time wait for each other: one prepares, the others find it done.
    """
    if sys.version_info < NEEDED:
        raise NotReady(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]} ({sys.executable})")
    if shutil.which("git") is None:
        raise NotReady("git is not on PATH; install it (Debian: apt-get install git) and start again")
    python = interpreter()
    if _is_ready(kind, python):
        return python
    with _alone() as lock:
        if not _is_ready(kind, python):
            _make(python, lock)
            _fill(kind, python)
    return python


def interpreter() -> Path:
    """Where the environment's interpreter is, or will be."""
    return PLACE / "Scripts" / "python.exe" if os.name == "nt" else PLACE / "bin" / "python"


def fingerprint(kind: str) -> str:
    """What the environment must have been made from: its list, the product's own declaration, where it all lies."""
    digest = hashlib.sha256()
    for part in (LISTS[kind], "pyproject.toml"):
        digest.update((ROOT / part).read_bytes())
        digest.update(b"\0")
    # A moved checkout or another interpreter makes every path inside the environment wrong.
    digest.update(f"{ROOT}\0{_base()}".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _base() -> str:
    """The interpreter that the environment stands on, named alike from inside and outside of it."""
    return f"{sys.version_info.major}.{sys.version_info.minor} {os.path.realpath(sys.base_prefix)}"


def _stamp(kind: str) -> Path:
    return PLACE / f".resweep-{kind}"


def _is_ready(kind: str, python: Path) -> bool:
    try:
        return _stamp(kind).read_text() == fingerprint(kind) and python.exists()
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _alone() -> Generator[BinaryIO, None, None]:
    """Hold the lock under which the environment is changed; the system frees it however this process ends.

    The lock's file says what the environment was made from, or nothing if it was never made here.
    """
    try:
        lock = (ROOT / ".venv.lock").open("a+b")
    except OSError as error:
        raise NotReady(f"can't write to {ROOT} ({error.strerror}); the environment is made there") from error
    with lock:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - there on Windows only
            import time  # noqa: PLC0415 - waiting is this branch's only use of it

            while True:
                try:
                    lock.seek(1 << 20)  # far behind the text: a locked byte can't be read by others there
                    msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)
                    break
                except OSError:
                    time.sleep(0.2)
        else:
            import fcntl  # noqa: PLC0415 - not there on Windows

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _say("another start is preparing the environment; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _make(python: Path, lock: BinaryIO) -> None:
    """Make the environment unless one that stands on this interpreter, at this place, is there with a pip that runs."""
    lock.seek(0)
    made_from = lock.read().decode(errors="replace")
    here = f"{ROOT}\n{_base()}\n"
    is_sound = python.exists() and _told_by(python) == _base() and _runs([str(python), *PIP, "--version"])
    if is_sound and made_from in {here, ""}:
        _note(lock, here)
        return
    if PLACE.exists() and not made_from:
        # It may be somebody's work: what was not made here is not cleared here.
        raise NotReady(f"{PLACE} was made by something else and does not fit; move it away and start again")
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise NotReady(
            f"{sys.executable} has no venv module with pip in it; install it "
            f"(Debian and Ubuntu: apt-get install python{version}-venv) and start again"
        )
    _say(f"making the virtual environment with Python {sys.version.split()[0]}")
    _note(lock, "being made\n")
    made = subprocess.run([sys.executable, "-I", "-m", "venv", "--clear", str(PLACE)], check=False, stdout=sys.stderr)
    if made.returncode != 0:
        raise NotReady(f"could not make the virtual environment in {PLACE}; what went wrong stands above")
    _note(lock, here)


def _note(lock: BinaryIO, text: str) -> None:
    lock.truncate(0)
    lock.write(text.encode(errors="replace"))
    lock.flush()


def _told_by(python: Path) -> str:
    """What another interpreter says it stands on; empty if it says nothing."""
    program = "import os, sys; print(*sys.version_info[:2], sep='.', end=' '); print(os.path.realpath(sys.base_prefix))"
    try:
        return subprocess.run(
            [str(python), "-I", "-c", program], check=False, capture_output=True, text=True, errors="surrogateescape"
        ).stdout.rstrip("\n")
    except OSError:
        return ""


def _fill(kind: str, python: Path) -> None:
    for each in LISTS:  # nothing is promised from here until the end
        _stamp(each).unlink(missing_ok=True)
    wanted = LISTS[kind]
    _say(f"installing what {wanted} lists; the first time this takes a minute or two")
    _pip(python, "install", "--quiet", "--only-binary", ":all:", "--require-hashes", "-r", str(ROOT / wanted))
    _pip(python, "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    for each in LISTS:
        if each in {kind, "product"}:
            _stamp(each).write_text(fingerprint(each))
    _say("the environment is ready")


def _pip(python: Path, *arguments: str) -> None:
    # A person's pip settings (index, proxy, certificates) hold; where to install to is not theirs to say here.
    environment = {name: value for name, value in os.environ.items() if name not in {"PIP_TARGET", "PIP_PREFIX"}}
    environment |= {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_ROOT_USER_ACTION": "ignore"}
    command = [str(python), *PIP, *arguments]
    done = subprocess.run(command, env=environment, check=False, stdout=sys.stderr, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise NotReady(
            f"pip ended with {done.returncode}; its reason stands above. If no package index could be reached, check "
            "the network, or name a proxy (HTTPS_PROXY) or a mirror (PIP_INDEX_URL), and start again"
        )


def _runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def _say(text: str) -> None:
    print(f"resweep: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
