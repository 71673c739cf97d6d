"""Whose fault a failed git program was: the network's, the server's, this machine's, or this repository's."""

import re

from ..schema.errors import SourceFault, TargetFault
from ..schema.text import display
from . import gitaddress
from .base import CommandResult

_MESSAGE_LIMIT = 500

# What git says on stderr, by meaning; the first match counts. C locale, git 2.39 to 2.5x.
_REMOTE_FAULTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("dns", re.compile(r"Could not resolve (host|proxy)|Name or service not known|Temporary failure in name")),
    ("tls", re.compile(r"SSL|TLS|certificate", re.IGNORECASE)),
    ("limited", re.compile(r"error: 429|Too Many Requests|rate limit", re.IGNORECASE)),
    (
        "credential",
        re.compile(
            r"Authentication failed|could not read (Username|Password)|error: 40[13]|Permission denied \(|"
            r"Host key verification failed|terminal prompts disabled|Access denied",
        ),
    ),
    ("server", re.compile(r"error: 5\d\d|Internal Server Error|Bad Gateway|Service Unavailable")),
    (
        "timeout",
        re.compile(r"timed out|Operation too slow|Timeout was reached", re.IGNORECASE),
    ),
    (
        "connect",
        re.compile(
            r"Failed to connect|Could(n't| not) connect|Connection (refused|reset|closed)|No route to host|"
            r"Network is unreachable|Empty reply from server|unable to connect|kex_exchange_identification|"
            r"RPC failed|early EOF|unexpected disconnect|remote end hung up|Recv failure",
        ),
    ),
)
_NOT_FOUND = re.compile(
    r"repository .* not found|not found: did you run|error: 404|Repository not found", re.IGNORECASE
)
_NO_REPOSITORY = re.compile(r"does not appear to be a git repository|not a git repository")
_UNREADABLE = re.compile(r"Permission denied|unable to open|could not open", re.IGNORECASE)
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_TALK = re.compile(
    r"Could not read from remote repository|make sure you have the correct access rights|^and the repository"
)
_TOO_LARGE = re.compile(r"died of signal 25|File too large|SIGXFSZ")


class DiskFull(SourceFault):
    """No space left on this machine: nobody else's fault; the cache may give some back."""


def explain(result: CommandResult, address: str, doing: str) -> SourceFault | TargetFault:
    """Turn a failed program into the error to raise. ``doing`` says what it was for, as in "fetching"."""
    text = result.stderr.decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not _TALK.search(line)] or lines
    shown = display(" / ".join(lines))[-_MESSAGE_LIMIT:]
    where = display(address)
    if _NO_SPACE.search(text):
        return DiskFull("unreadable", f"no space left while {doing} of {where}; make room below data_dir: {shown}")
    if _TOO_LARGE.search(text):
        return TargetFault("too_large", f"{where} is larger than scan.file_size_mb allows: {shown}", permanent=True)
    if gitaddress.is_local(address):
        return _explain_local(result, text, f"{doing} of {where}", shown)
    return _explain_remote(result, text, f"{doing} of {where}", shown)


def _explain_local(result: CommandResult, text: str, what: str, shown: str) -> TargetFault:
    if result.timed_out:
        return TargetFault("time_limit", f"{what} took longer than its time limit")
    if _NO_REPOSITORY.search(text):
        return TargetFault("broken", f"{what} failed: it is no git repository that git can read: {shown}")
    if _UNREADABLE.search(text):
        return TargetFault("unreadable", f"{what} failed: this user may not read it: {shown}")
    return TargetFault("broken", f"{what} failed (git ended with {result.exit_code}): {shown}")


def _explain_remote(result: CommandResult, text: str, what: str, shown: str) -> SourceFault | TargetFault:
    if result.timed_out:
        return SourceFault("timeout", f"{what} took longer than its time limit")
    if _NOT_FOUND.search(text) or _NO_REPOSITORY.search(text):
        return TargetFault("not_found", f"{what} failed: not found, or this credential may not see it: {shown}")
    for code, pattern in _REMOTE_FAULTS:
        if pattern.search(text):
            return SourceFault(code, f"{what} failed ({code}): {shown}")
    return TargetFault("broken", f"{what} failed (git ended with {result.exit_code}): {shown}")
