"""Target specs (``KIND:SCOPE``, ``KIND:PATH``): what a person writes to say what to scan, and its canonical form.

The canonical form is a source's identity, so two spellings of one thing must meet in it: ``hf`` becomes
``huggingface``, paths become real paths, names are case-folded where the provider does so. Kinds whose adapters are
not in this version are understood too; ``catalog`` says so when they are used.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path

from ..schema.errors import UsageFault
from ..schema.text import display
from . import gitaddress

KINDS = ("git", "github", "gitlab", "huggingface", "dockerhub")
_ALIASES = {"hf": "huggingface", "docker": "dockerhub", "gh": "github", "gl": "gitlab"}
_SHOWN = 200
_LOCAL_HINTS = ("/", "./", "../", "~", ".")

_GITHUB_OWNER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,38})\Z")
_GITHUB_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}\Z")
_GITLAB_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}\Z")
_HF_PART = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9][A-Za-z0-9._-]{0,95}\Z")
_DOCKER_PART = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*\Z")
_DOCKER_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_DOCKER_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


class SpecRefused(UsageFault):
    """A spec that cannot be understood: says where, why, and what to write instead."""


class Form(StrEnum):
    """What the part after the colon is."""

    SCOPE = "scope"  # many targets, listed by the provider
    TARGET = "target"  # one target
    FOLDER = "folder"  # git:PATH
    ADDRESS = "address"  # git:URL
    LIST = "list"  # git:@FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A spec that was understood."""

    kind: str
    form: Form
    scope: str  # canonical text after the kind: ``org:acme``, ``acme/repo``, a real path, an address, ``@FILE``
    path: Path | None = None  # of a folder or list

    @property
    def canonical(self) -> str:
        """The spec as it names a source; reading it again gives the same spec."""
        return f"{self.kind}:{self.scope}"


def parse_spec(text: str, *, cwd: Path) -> Spec:
    """Understand a spec; relative paths are taken from ``cwd``. Nothing is opened: a path need not exist (yet).

    Raises ``SpecRefused``.
    """
    shown = display(text[:_SHOWN])
    if "\0" in text or not text.strip():
        raise SpecRefused(f"spec {shown!r} is empty or has a NUL; write KIND:SCOPE, for example git:.")
    word, colon, rest = text.partition(":")
    kind = _ALIASES.get(word.lower(), word.lower())
    if not colon or kind not in KINDS:
        raise SpecRefused(_unknown_kind(text, shown, word))
    if not rest:
        raise SpecRefused(f"spec {shown!r} ends after the kind; write {_EXAMPLES[kind]}")
    if kind == "git":
        return _git(rest, shown, cwd)
    if rest != rest.strip() or any(c.isspace() or ord(c) < ord(" ") for c in rest):
        raise SpecRefused(f"spec {shown!r} has spaces or control characters; write {_EXAMPLES[kind]}")
    return _READERS[kind](rest, shown)


def parse_scope(kind: str, scope: str, *, cwd: Path) -> Spec:
    """Understand a configured source's ``kind`` and ``scope``; the same rules as for a spec."""
    return parse_spec(f"{kind}:{scope}", cwd=cwd)


def _git(rest: str, shown: str, cwd: Path) -> Spec:
    if rest.startswith("@"):
        if rest == "@":
            raise SpecRefused(f"spec {shown!r} names no file after '@'; write git:@FILE")
        file = _real(rest[1:], cwd)
        return Spec(kind="git", form=Form.LIST, scope=f"@{gitaddress.local_address(str(file))}", path=file)
    if rest.startswith("-"):
        raise SpecRefused(f"spec {shown!r}: a path that begins with '-' is written git:./{display(rest[:_SHOWN])}")
    if rest.lower().startswith("file://"):
        if not rest.startswith("file:///"):
            raise SpecRefused(f"spec {shown!r}: a file address has no host; write git:/PATH or git:file:///PATH")
        rest = gitaddress.local_path(rest)
        if "\0" in rest:
            raise SpecRefused(f"spec {shown!r}: the path has a NUL; write git:PATH")
    # What exists as a path is a path, even when it could be read as host:path.
    elif _meant_remote(rest) and ("://" in rest or not os.path.lexists(cwd / rest)):
        try:
            remote = gitaddress.parse_remote(rest)
        except gitaddress.AddressRefused as error:
            raise SpecRefused(f"spec {_hide(shown)!r}: {error}") from error
        return Spec(kind="git", form=Form.ADDRESS, scope=remote.address)
    path = _real(rest, cwd)
    return Spec(kind="git", form=Form.FOLDER, scope=gitaddress.local_address(str(path)), path=path)


def _meant_remote(rest: str) -> bool:
    return gitaddress.looks_remote(rest) or "::" in rest.split("/", 1)[0]


def _real(text: str, cwd: Path) -> Path:
    if text.startswith("file:///"):
        text = gitaddress.local_path(text)
    expanded = os.path.expanduser(text) if text.startswith("~") else text
    return Path(os.path.realpath(os.path.join(cwd, expanded)))


def _github(rest: str, shown: str) -> Spec:
    word, colon, value = rest.partition(":")
    if rest == "all":
        return Spec(kind="github", form=Form.SCOPE, scope="all")
    if colon and word in {"org", "user"}:
        return _scope("github", word, _matching(_GITHUB_OWNER, value, shown, "an account name").casefold())
    if colon and word == "installation":
        return _scope("github", word, _matching(re.compile(r"[0-9]{1,20}\Z"), value, shown, "an installation number"))
    if colon and word == "search":
        if not value:
            raise SpecRefused(f"spec {shown!r} has no search words; write github:search:WORDS")
        return _scope("github", word, value)
    owner, slash, name = rest.partition("/")
    if not slash or colon:
        raise SpecRefused(_not_understood("github", shown))
    owner = _matching(_GITHUB_OWNER, owner, shown, "an account name").casefold()
    return Spec(kind="github", form=Form.TARGET, scope=f"{owner}/{_repository(name, shown)}")


def _repository(name: str, shown: str) -> str:
    # GitHub takes NAME.git for NAME; nothing else is ever rebuilt.
    return _matching(_GITHUB_NAME, name.removesuffix(".git"), shown, "a repository name").casefold()


def _gitlab(rest: str, shown: str) -> Spec:
    word, colon, value = rest.partition(":")
    if rest == "instance":
        return Spec(kind="gitlab", form=Form.SCOPE, scope="instance")
    if colon and word in {"group", "user"}:
        parts = [_matching(_GITLAB_PART, part, shown, "a group name") for part in value.split("/")]
        if word == "user" and len(parts) != 1:
            raise SpecRefused(f"spec {shown!r}: a user has no '/'; write gitlab:user:NAME")
        return _scope("gitlab", word, "/".join(parts).casefold())
    parts = rest.split("/")
    if colon or "/" not in rest:
        raise SpecRefused(_not_understood("gitlab", shown))
    parts = [_matching(_GITLAB_PART, part, shown, "a group or project name") for part in parts]
    return Spec(kind="gitlab", form=Form.TARGET, scope="/".join(parts).casefold())


def _huggingface(rest: str, shown: str) -> Spec:
    word, colon, value = rest.partition(":")
    if rest in {"spaces", "models", "datasets"}:
        return Spec(kind="huggingface", form=Form.SCOPE, scope=rest)
    if colon and word == "author":
        return _scope("huggingface", word, _matching(_HF_PART, value, shown, "an author's name"))
    if colon:
        raise SpecRefused(_not_understood("huggingface", shown))
    parts = rest.split("/")
    if parts[0] not in {"spaces", "models", "datasets"}:
        parts.insert(0, "models")  # the hub's own addresses leave "models" out
    most = 3
    least = 3 if parts[0] == "spaces" else 2  # old models and datasets have no owner
    if not least <= len(parts) <= most:
        raise SpecRefused(_not_understood("huggingface", shown))
    names = [_matching(_HF_PART, part, shown, "a name") for part in parts[1:]]
    return Spec(kind="huggingface", form=Form.TARGET, scope="/".join([parts[0], *names]))


def _dockerhub(rest: str, shown: str) -> Spec:
    word, colon, value = rest.partition(":")
    if colon and word == "namespace":
        return _scope("dockerhub", word, _matching(_DOCKER_PART, value.lower(), shown, "a namespace"))
    name, at, digest = rest.partition("@")
    repository, colon, tag = name.partition(":")
    parts = repository.lower().split("/")
    if len(parts) == 1:
        parts.insert(0, "library")  # official images
    if len(parts) != len(("namespace", "repository")):
        raise SpecRefused(_not_understood("dockerhub", shown))
    scope = "/".join(_matching(_DOCKER_PART, part, shown, "a namespace or repository") for part in parts)
    if colon:
        scope += f":{_matching(_DOCKER_TAG, tag, shown, 'a tag')}"
    if at:
        scope += f"@{_matching(_DOCKER_DIGEST, digest, shown, 'a digest (sha256:…)')}"
    return Spec(kind="dockerhub", form=Form.TARGET, scope=scope)


_READERS: dict[str, Callable[[str, str], Spec]] = {
    "github": _github,
    "gitlab": _gitlab,
    "huggingface": _huggingface,
    "dockerhub": _dockerhub,
}
_EXAMPLES = {
    "git": "git:PATH, git:URL or git:@FILE",
    "github": "github:org:NAME, github:user:NAME, github:installation:ID, github:search:WORDS, github:all or "
    "github:OWNER/REPOSITORY",
    "gitlab": "gitlab:instance, gitlab:group:A/B, gitlab:user:NAME or gitlab:GROUP/PROJECT",
    "huggingface": "hf:spaces, hf:models, hf:datasets, hf:author:NAME or hf:spaces/OWNER/NAME",
    "dockerhub": "dockerhub:namespace:NAME or dockerhub:NAMESPACE/REPOSITORY[:TAG]",
}


def _scope(kind: str, word: str, value: str) -> Spec:
    return Spec(kind=kind, form=Form.SCOPE, scope=f"{word}:{value}")


def _matching(pattern: re.Pattern[str], value: str, shown: str, what: str) -> str:
    if pattern.match(value) is None:
        raise SpecRefused(f"spec {shown!r}: {display(value[:_SHOWN])!r} is not {what}; check the spelling")
    return value


def _not_understood(kind: str, shown: str) -> str:
    return f"spec {shown!r} is neither a scope nor a target of {kind}; write {_EXAMPLES[kind]}"


def _unknown_kind(text: str, shown: str, word: str) -> str:
    if text.startswith(_LOCAL_HINTS) or "://" in text or ("@" in word and gitaddress.looks_remote(text)):
        return f"spec {_hide(shown)!r} has no kind; did you mean git:{_hide(shown)}?"
    close = get_close_matches(word.lower(), [*KINDS, *_ALIASES], n=1)
    hint = f"did you mean {close[0]}:…?" if close else f"kinds are {', '.join(KINDS)} (hf is huggingface)"
    return f"spec {shown!r} does not begin with a known kind; {hint}"


def _hide(shown: str) -> str:
    """A spec for messages: what stands before '@' in an address may be a password."""
    return re.sub(r"(://)[^/@\s]*@", r"\1…@", shown)
