"""Which keys there are, what each is called in the environment, and what a misspelt one was meant to be."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from ..schema.errors import ConfigFault
from .config_model import ScannerSettings, Settings, SourceSettings, TenantSettings

PREFIX = "RESWEEP_"
NAMED: Mapping[str, type[BaseModel]] = {
    "sources": SourceSettings,
    "scanners": ScannerSettings,
    "tenants": TenantSettings,
}
"""Tables whose keys are names that people choose."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_SECRETS = {
    "token": "token_env or token_file",
    "password": "a variable or file, named by url_env or url_file",
    "private_key": "private_key_file",
    "webhook_secret": "webhook_secret_env or webhook_secret_file",
    "viewer_token": "viewer_token_file",
    "operator_token": "operator_token_file",
    "key": "key_file",
}

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One key that can be set, and the type its text is read as."""

    key: Key
    annotation: Any


def slots(names: Mapping[str, Iterable[str]]) -> Iterator[Slot]:
    """Every key there is; ``names`` gives the chosen names of ``NAMED`` tables."""
    for section, info in Settings.model_fields.items():
        if section in NAMED:
            for name in names.get(section, ()):
                for field, inner in NAMED[section].model_fields.items():
                    yield Slot(key=(section, name, field), annotation=_whole(inner))
            continue
        model = info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            for field, inner in model.model_fields.items():
                yield Slot(key=(section, field), annotation=_whole(inner))
        else:
            yield Slot(key=(section,), annotation=_whole(info))


def variable(key: Key) -> str:
    """The environment variable of a key: upper case, other characters as ``_``, levels joined by ``__``."""
    return PREFIX + "__".join(re.sub(r"[^A-Z0-9]", "_", part.upper()) for part in key)


def variables(names: Mapping[str, Iterable[str]]) -> dict[str, Slot]:
    """Variable to key. Raises ``ConfigFault`` when two keys share a variable."""
    found: dict[str, Slot] = {}
    for slot in slots(names):
        name = variable(slot.key)
        other = found.setdefault(name, slot)
        if other.key != slot.key:
            raise ConfigFault(
                f"{'.'.join(other.key[:2])} and {'.'.join(slot.key[:2])} have the same variables in the environment "
                f"({name}, …); give one of them another name"
            )
    return found


def read_text(text: str, annotation: Any) -> Any:
    """A variable's text as the type of its key: JSON or commas for lists. Raises ``ValueError`` with what to write."""
    kinds = set(_kinds(annotation))
    if bool in kinds:
        word = text.strip().lower()
        if word in _TRUE | _FALSE:
            return word in _TRUE
        message = "should be true or false"
        raise ValueError(message)
    if tuple in kinds:
        return _list(text, numbers=int in kinds)
    if kinds & {int, float}:
        try:
            return int(text) if int in kinds or text.strip().lstrip("+-").isdigit() else float(text)
        except ValueError:
            if text.strip() == "never":
                return "never"
            message = "should be a whole number" if int in kinds else "should be a number"
            raise ValueError(message) from None
    return text


def _list(text: str, *, numbers: bool) -> list[Any]:
    if text.lstrip().startswith("["):
        try:
            read = json.loads(text)
        except json.JSONDecodeError as error:
            message = f"is no JSON list ({error}); or write the values with commas between them"
            raise ValueError(message) from error
        return list(read)
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not numbers:
        return list(words)
    try:
        return [int(word) for word in words]
    except ValueError:
        message = "should be whole numbers with commas between them"
        raise ValueError(message) from None


def _whole(info: Any) -> Any:
    return info.annotation


def _kinds(annotation: Any) -> Iterator[type]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif origin in {Union, UnionType}:
        for each in get_args(annotation):
            yield from _kinds(each)
    elif origin is tuple:
        yield tuple
        yield from _kinds(get_args(annotation)[0])
    elif origin is Literal:
        yield str
    elif isinstance(annotation, type):
        yield annotation


def children(key: Key) -> list[str] | None:
    """The keys that may stand in the table ``key``; None where people choose them, or where there is no such table."""
    if not key:
        return list(Settings.model_fields)
    if key[0] in NAMED:
        return list(NAMED[key[0]].model_fields) if len(key) == 2 else None  # noqa: PLR2004 - sources.NAME
    info = Settings.model_fields.get(key[0])
    model = info.annotation if info and len(key) == 1 else None
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else None


def suggest_key(key: Key) -> str:
    """What to write instead of an unknown key."""
    name, table = key[-1], key[:-1]
    if name in _SECRETS:
        return f"a secret does not belong into the configuration; use {_SECRETS[name]}"
    known = children(table) or []
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    for slot in slots(dict.fromkeys(NAMED, ("NAME",))):
        if slot.key[-1] == name and len(slot.key) > 1:
            return f"it belongs to [{'.'.join(slot.key[:-1])}]"
    return f"known here: {', '.join(sorted(known))}" if known else "there is no such table"


def suggest_variable(name: str, known: Iterable[str]) -> str:
    """What to write instead of an unknown variable."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else "`resweep config show` lists the keys; unset it"
