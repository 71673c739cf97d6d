"""Runs one program as an ordinary user; PostgreSQL refuses to be root. Started alone: ``python -I -S pglaunch.py``.

``namespace PROGRAM …`` makes a user namespace in which our files belong to an ordinary user: nothing has to be copied
or given away. ``user UID GID PROGRAM …`` drops to that user for good.
"""

import ctypes
import os
import sys
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_INNER_USER = 1  # "daemon" on every Linux: initdb wants a user that has a name


def _enter_namespace() -> None:
    outer_user, outer_group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "user namespaces are not allowed here")
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{_INNER_USER} {outer_user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{_INNER_USER} {outer_group} 1", encoding="ascii")


def _become(user: int, group: int) -> None:
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def main(arguments: list[str]) -> None:
    """Change who we are, then become the program."""
    if arguments[0] == "namespace":
        _enter_namespace()
        program = arguments[1:]
    else:
        _become(int(arguments[1]), int(arguments[2]))
        program = arguments[3:]
    if program:
        os.execv(program[0], program)  # noqa: S606 -- becoming the program is what this file is for


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.exit(f"{error.strerror}: {error.filename or 'unshare'}")
