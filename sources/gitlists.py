"""Lists of addresses (``git:@FILE``): one a line, comments and blank lines allowed, bad lines named by number."""

import os
from dataclasses import dataclass
from pathlib import Path

from ..schema.errors import SourceFault
from ..schema.text import display
from . import gitaddress
from .base import EntryFault

_SIZE_LIMIT = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressList:
    """What a list file says; ``faults`` names each bad line as ``FILE:NUMBER``."""

    addresses: tuple[str, ...]  # canonical, in the file's order, without repetitions
    faults: tuple[EntryFault, ...]
    repeated: int


def read_list(file: Path) -> AddressList:
    """Read a list file. A relative path in it is taken from the file's own folder.

    Lines may end in LF or CRLF; a ``#`` begins a comment at the start of a line or after a space; a byte order mark is
    ignored. Raises ``SourceFault`` (``unreadable``, ``malformed``) when the file as a whole cannot be read.
    """
    shown = display(str(file))
    try:
        if file.stat().st_size > _SIZE_LIMIT:
            raise SourceFault("malformed", f"{shown} is larger than {_SIZE_LIMIT >> 20} MiB; split the list")
        content = file.read_bytes()
    except OSError as error:
        message = f"the address list {shown} cannot be read: {error.strerror}; check the path and its permissions"
        raise SourceFault("unreadable", message) from error
    addresses: dict[str, None] = {}
    faults: list[EntryFault] = []
    repeated = 0
    for number, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        entry = f"{shown}:{number}"
        try:
            line = _without_comment(raw.decode("utf-8")).strip()
        except UnicodeDecodeError:
            faults.append(EntryFault(entry=entry, code="malformed", message=f"{entry}: the line is not UTF-8"))
            continue
        if not line:
            continue
        try:
            address = _address(line, file.parent)
        except gitaddress.AddressRefused as error:
            faults.append(EntryFault(entry=entry, code="malformed", message=f"{entry}: {error}"))
            continue
        if address in addresses:
            repeated += 1
        addresses[address] = None
    return AddressList(addresses=tuple(addresses), faults=tuple(faults), repeated=repeated)


def _without_comment(line: str) -> str:
    if line.lstrip().startswith("#"):
        return ""
    return line.split(" #", 1)[0].split("\t#", 1)[0]


def _address(line: str, folder: Path) -> str:
    if gitaddress.looks_remote(line) or line.startswith("-"):
        return gitaddress.parse_remote(line).address
    if line.startswith("file:///"):
        line = gitaddress.local_path(line)
    if "\0" in line:
        raise gitaddress.AddressRefused("the path has a NUL; write a path or an address")
    return gitaddress.local_address(os.path.realpath(folder / Path(line).expanduser()))
