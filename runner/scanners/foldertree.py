"""Removing and measuring folders that somebody hostile filled. Standard library only: the guardian uses it."""

# pathlib is slow to load for the guardian, and knows no folder descriptors
# ruff: noqa: PTH101, PTH106, PTH108

import contextlib
import errno
import os
from collections.abc import Iterator

_DISK_ENTRIES = 50_000


def remove_tree(path: str) -> None:
    """Remove a folder that somebody hostile filled: unreadable folders, links, names of any bytes, any depth.

    Links are removed, never followed. Sub-folders are first moved up to the top, so neither recursion nor a path
    longer than the system allows can stop it. What is already gone is no error.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(path)
        return
    except PermissionError:
        os.chmod(path, 0o700)
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    moved = 0
    try:
        with contextlib.suppress(OSError):
            os.fchmod(top, 0o700)
        while True:
            with os.scandir(top) as entries:
                names = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
            if not names:
                break
            for name, is_folder in names:
                if is_folder:
                    moved = _lift(top, name, moved)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=top)
    finally:
        os.close(top)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path)


def _lift(top: int, name: bytes, moved: int) -> int:
    """Empty one folder below ``top``: unlink its files, move its folders to the top, remove it."""
    try:
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    except FileNotFoundError:
        return moved
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=top)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        os.fchmod(inner, 0o700)
        with os.scandir(inner) as entries:
            below = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
        for child, is_folder in below:
            if is_folder:
                # A folder without write permission can be moved only after it has been given to its owner again.
                with contextlib.suppress(OSError):
                    os.chmod(child, 0o700, dir_fd=inner)
                while True:
                    moved += 1
                    try:
                        os.rename(child, b".resweep-lifted-%d" % moved, src_dir_fd=inner, dst_dir_fd=top)
                        break
                    except OSError as error:
                        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                            raise  # the three say that the new name is taken: try the next
            else:
                os.unlink(child, dir_fd=inner)
    finally:
        os.close(inner)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(name, dir_fd=top)
    return moved


def folder_bytes(path: str) -> int:
    """Bytes on disk below ``path``, links not followed; stops counting after ``_DISK_ENTRIES`` entries."""
    return sum(on_disk for _, on_disk in _files(path))


def _files(path: str) -> Iterator[tuple[int, int]]:
    seen = 0
    waiting = [path]
    while waiting and seen < _DISK_ENTRIES:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        found = entry.stat(follow_symlinks=False)
                        yield found.st_size, found.st_blocks * 512


def largest_file(path: str) -> int:
    """Size of the largest file below ``path``, with the bounds of ``folder_bytes``."""
    return max((size for size, _ in _files(path)), default=0)
