"""What a secret is known by without being known: its keyed identity, what may be shown, and its removal from texts.

Clear text never leaves the process that read a scanner's report (product.md, "Findings"). The identity is keyed, so
that whoever reads the database cannot try guesses against it; the key stays outside of the database.
"""

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...schema.errors import ConfigFault
from ...schema.records import Claim

KEY_BYTES = 32
_CHECK_CONTEXT = b"resweep findings key, check value 1"
_SHOWN_AT_MOST = 4
_SHOWN_ONE_IN = 6  # of a secret's characters at most one in so many is shown
_LENGTH_SHOWN_FROM = 12  # below, the length itself would help a guesser
_REDACT_FROM_BYTES = 4  # shorter values would blot out ordinary words
_REMOVED = "[secret removed]"
# A run of letters and digits so long, with both in it, is nothing a person wrote: taken out of error texts unless it
# is an object id of git, which people need.
_TOKEN = re.compile(r"[A-Za-z0-9+_=-]{20,}")
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")


@dataclass(frozen=True, slots=True)
class FindingsKey:
    """The deployment's key. Never printed: ``repr`` hides it."""

    key: bytes = field(repr=False)

    @property
    def check_value(self) -> bytes:
        """16 bytes that tell keys apart without giving one away; kept in the database.

        A worker whose key has another check value than the stored one must be refused: each finding it stored would
        be a new one.
        """
        return hmac.digest(self.key, _CHECK_CONTEXT, hashlib.sha256)[:16]

    def identify(self, target: str, rule: str, secret: bytes) -> bytes:
        """HMAC-SHA-256 over target, canonical rule and secret: 32 bytes, the identity of a finding.

        Each part carries its length, so that no two triples run together to the same text.
        """
        state = hmac.new(self.key, digestmod=hashlib.sha256)
        for part in (target.encode("utf-8", "surrogatepass"), canonical_rule(rule).encode(), secret):
            state.update(len(part).to_bytes(8, "big"))
            state.update(part)
        return state.digest()


def load_key(path: Path) -> FindingsKey:
    """Read the key file, making it first when there is none: 64 hex digits, mode 0600, appearing whole or not at all.

    Two processes that start at once get the same key. Raises ``ConfigFault`` for a file that others may read, that
    cannot be read, or that holds something else: a wrong key must never be taken silently.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        _create(path)
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(4096).strip()
    except OSError as error:
        msg = f"findings.key_file {path} cannot be read: {error.strerror}; give it to this user with mode 0600"
        raise ConfigFault(msg) from error
    if mode & 0o077 and os.name == "posix":
        msg = f"findings.key_file {path} has mode {mode:04o}: others can read it; run chmod 600 on it"
        raise ConfigFault(msg)
    if not re.fullmatch(rb"[0-9a-fA-F]{64}", text):
        msg = f"findings.key_file {path} does not hold 64 hex digits; restore it from a backup, or name another file"
        raise ConfigFault(msg)
    return FindingsKey(bytes.fromhex(text.decode("ascii")))


def _create(path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_hex(KEY_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)  # unlike a rename this never replaces the key of whoever came first
        except FileExistsError:
            return
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # a key that is lost in a crash would make every finding new
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def canonical_rule(rule: str) -> str:
    """A rule's name as the identity takes it: without case and outer space."""
    return rule.strip().casefold()


def target_identity(claim: Claim) -> str:
    """What a target is to its findings: kind and the provider's stable id, else its name.

    A renamed repository keeps its findings; the same repository in two databases gives the same identities.
    """
    return repository_identity(claim.kind, claim.provider_id, claim.name)


def repository_identity(kind: str, provider_id: str | None, name: str) -> str:
    """What ``target_identity`` says, for whoever has no claim."""
    return f"{kind}\0id:{provider_id}" if provider_id else f"{kind}\0name:{name}"


def mask(secret: bytes) -> str:
    """What may be shown of a secret: the first few characters, at most four and at most one in six, and its length.

    Enough to recognise a token by its prefix (``ghp_…``), never enough to use or to guess it.
    """
    text = secret.decode("utf-8", "replace")
    count = len(text)
    shown = "".join(c if c.isprintable() and not c.isspace() else "·" for c in text[: min(_SHOWN_AT_MOST, count // 6)])
    if count < _LENGTH_SHOWN_FROM:
        return f"{shown}… (under {_LENGTH_SHOWN_FROM} characters)"
    return f"{shown}… ({count} characters)"


def redact(text: str, values: Iterable[bytes] = ()) -> str:
    """``text`` without the ``values`` in any encoding they may travel in, and without what looks like a token.

    By value first (as written, quoted for JSON, Python, shell and URLs, hex, base64 at any offset); then by shape,
    for secrets that nobody told us of yet.
    """
    for form in sorted(_forms(values), key=len, reverse=True):
        text = text.replace(form, _REMOVED)
    return _TOKEN.sub(_blot, text)


def _blot(match: re.Match[str]) -> str:
    token = match[0]
    mixed = any(c.isdigit() for c in token) and any(c.isalpha() for c in token)
    return f"[{len(token)} characters removed]" if mixed and not _OBJECT_ID.match(token) else token


def _forms(values: Iterable[bytes]) -> set[str]:
    forms: set[str] = set()
    for value in values:
        # Of a secret with several lines any one line is enough to harm.
        for part in {value, *value.splitlines()}:
            if len(part) >= _REDACT_FROM_BYTES:
                forms |= _encodings(part)
    return {form for form in forms if len(form) >= _REDACT_FROM_BYTES}


def _encodings(part: bytes) -> set[str]:
    text = part.decode("utf-8", "replace")
    forms = {
        text,
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        repr(text)[1:-1],
        repr(part)[2:-1],
        urllib.parse.quote(part),
        urllib.parse.quote(part, safe=""),
        urllib.parse.quote_plus(part),
        part.hex(),
        part.hex().upper(),
        text.replace("'", "'\\''"),
    }
    for lead in range(3):
        # Inside a longer text base64 starts at any of three offsets; only whole characters of ours are taken.
        encoded = base64.b64encode(b"\0" * lead + part).rstrip(b"=").decode()
        whole = encoded[(0, 2, 3)[lead] : len(encoded) - (0 if (lead + len(part)) % 3 == 0 else 1)]
        forms |= {whole, whole.replace("+", "-").replace("/", "_")}
    return forms
