"""Addresses of git repositories: what is accepted, its canonical form, and the protocols it needs.

A local repository's address is its absolute real path; where the path has bytes that are no UTF-8, or control
characters, it is ``file://`` with those percent-encoded, so that it can be stored, shown and typed again. No address
ever carries a credential.
"""

import os
import re
from dataclasses import dataclass
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

from ..schema.errors import UsageFault
from ..schema.text import display

_PORTS = {"ssh": 22, "https": 443, "http": 80, "git": 9418}
_SSH_ALIASES = {"git+ssh": "ssh", "ssh+git": "ssh"}
_SCP = re.compile(r"^(?P<user>[A-Za-z0-9._-]+@)?(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*):(?P<path>[^:].*)$", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x20\x7f-\x9f]")
_PATH_SAFE = "/!$&'()*+,;=:@~-._ "
_SHOWN = 200


class AddressRefused(UsageFault):
    """A text that is not an address git may be asked for; says why and what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A canonical address of a repository reached over the network."""

    address: str
    protocol: str  # git's name of the transport
    display_name: str


def is_local(address: str) -> bool:
    """Whether a canonical address names a path on this machine."""
    return address.startswith(("/", "file:///"))


def local_address(path: str) -> str:
    """The canonical address of an absolute path (as ``os.fsdecode`` gives it)."""
    raw = os.fsencode(path)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "file://" + quote_from_bytes(raw, safe=_PATH_SAFE)
    if any(ord(c) < ord(" ") or "\x7f" <= c <= "\x9f" or c in "\u2028\u2029" for c in text):
        return "file://" + quote_from_bytes(raw, safe=_PATH_SAFE)
    return text


def local_path(address: str) -> str:
    """The path behind a local canonical address; the inverse of ``local_address``."""
    if address.startswith("file:///"):
        return os.fsdecode(unquote_to_bytes(address.removeprefix("file://")))
    return address


def looks_remote(text: str) -> bool:
    """Whether a person who wrote this meant an address and not a path."""
    if "://" in text:
        return not text.lower().startswith("file://")
    match = _SCP.match(text)
    return match is not None and "/" not in text[: match.start("path")] and match["host"] not in {".", ".."}


def protocols(address: str) -> frozenset[str]:
    """Git's names of the transports that this canonical address may use, and no other (rulings.md 16)."""
    if is_local(address):
        return frozenset({"file"})
    protocol = parse_remote(address).protocol
    # A plain-http server may send the first request on to https, which is never worse.
    return frozenset({"http", "https"}) if protocol == "http" else frozenset({protocol})


def parse_remote(text: str) -> Remote:
    """Read an address of a remote repository and bring it to its canonical form.

    Scheme and host are lower case, the usual port and trailing slashes are dropped; a user name is kept for ssh only.
    Raises ``AddressRefused`` for everything else, credentials in the address included.
    """
    shown = display(text[:_SHOWN])
    if not text or _CONTROL.search(text):
        raise AddressRefused(_why(shown, "it is empty or has spaces or control characters", "percent-encode them"))
    if text.startswith("-"):
        raise AddressRefused(_why(shown, "an address never begins with '-'", "write the address itself"))
    if "::" in text.split("/", 1)[0]:
        raise AddressRefused(_why(shown, "remote helpers are not supported", "use https:// or ssh://"))
    if "://" in text:
        return _parse_url(text)
    match = _SCP.match(text)
    if match is None or "/" in text[: match.start("path")]:
        raise AddressRefused(_why(shown, "it is no address", "write https://HOST/PATH, ssh://… or user@host:path"))
    path = match["path"].rstrip("/")
    if not path or path.startswith("-"):
        raise AddressRefused(_why(shown, "the path is empty or begins with '-'", "write user@host:path"))
    address = f"{match['user'] or ''}{match['host'].lower()}:{path}"
    return Remote(address=address, protocol="ssh", display_name=_display_name(match["host"].lower(), path))


def _parse_url(text: str) -> Remote:
    shown = display(_without_userinfo(text)[:_SHOWN])
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise AddressRefused(_why(shown, f"it cannot be read ({error})", "check the host and port")) from error
    scheme = _SSH_ALIASES.get(parts.scheme.lower(), parts.scheme.lower())
    if scheme not in _PORTS:
        raise AddressRefused(_why(shown, f"'{display(scheme)}' is not supported", "use https, http, ssh or git"))
    host = (parts.hostname or "").lower()
    if not host or host.startswith("-") or not re.fullmatch(r"[a-z0-9._:-]+", host):
        raise AddressRefused(_why(shown, "the host is missing or malformed", f"write {scheme}://HOST/PATH"))
    if parts.password is not None or (parts.username and scheme != "ssh"):
        raise AddressRefused(
            _why(shown, "it carries a credential", "leave it out and configure token_env or token_file of the source")
        )
    if parts.username and not re.fullmatch(r"[A-Za-z0-9._][A-Za-z0-9._-]*", parts.username):
        raise AddressRefused(_why(shown, "the user name is malformed", "write ssh://USER@HOST/PATH"))
    if parts.fragment or "#" in text:
        raise AddressRefused(_why(shown, "an address has no '#' part", "leave it out: every branch and tag is scanned"))
    path = parts.path.rstrip("/")
    if not path:
        raise AddressRefused(_why(shown, "the path of the repository is missing", f"write {scheme}://HOST/PATH"))
    netloc = f"[{host}]" if ":" in host else host
    if port is not None and port != _PORTS[scheme]:
        netloc = f"{netloc}:{port}"
    if parts.username:
        netloc = f"{parts.username}@{netloc}"
    query = f"?{parts.query}" if parts.query else ""
    return Remote(
        address=f"{scheme}://{netloc}{path}{query}", protocol=scheme, display_name=_display_name(host, path.lstrip("/"))
    )


def _display_name(host: str, path: str) -> str:
    return f"{host}/{path.removesuffix('.git').lstrip('/')}"


def _without_userinfo(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def _why(shown: str, why: str, what_next: str) -> str:
    return f"address {shown!r} is refused: {why}; {what_next}"
