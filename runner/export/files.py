"""Files that appear whole or not at all, in a folder that the caller names."""

import os
import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TextIO

from ...schema.errors import UsageFault

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@contextmanager
def whole_file(path: Path) -> Generator[TextIO]:
    """Open a file for writing; it takes its name when the block ends well, and leaves nothing behind when it does not.

    Raises ``UsageFault`` when the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}; give a folder that this user can write with --output"
        raise UsageFault(message) from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def make_folder(path: Path) -> Path:
    """Make the folder for an export; raises ``UsageFault`` when it cannot be one."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        message = f"cannot use {path} as a folder: {error.strerror}; name another with --output"
        raise UsageFault(message) from error
    return path


def safe_name(*parts: str) -> str:
    """Give a file name that people recognise and no repository can bend: readable letters and a hash of all."""
    digest = sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    readable = "-".join(_UNSAFE.sub("_", part).strip("._-") for part in parts)[:80].strip("._-")
    return f"{readable or 'repository'}-{digest}"


def _sync_folder(folder: Path) -> None:
    """Make a new name last; not every system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
