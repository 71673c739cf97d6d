"""SARIF 2.1.0 as scanners write it, read for its findings; whatever is missing or odd in it is taken with care."""

import json
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from . import severity
from .base import RawFinding, ScanFault
from .jsonl import Item, number, object_id, part, parts

_SECRET_KEYS = ("secret", "match", "snippet")


def read(content: bytes, *, name: str, root: str = "") -> list[RawFinding]:
    """All results of all runs. ``root`` is the folder that was scanned: paths below it are given relative to it.

    An empty file is no report and fails: a SARIF writer writes an empty run. Suppressed results are left out, as the
    tool's own ignore rules said; so are those with a ``kind`` other than ``fail``. Raises ``ScanFault``.
    """
    try:
        found = [raw for run in _runs(content) for raw in _run(run, root)]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        msg = f"{name}: its report is no SARIF 2.1.0 ({type(error).__name__}: {error})"
        raise ScanFault("scanner_report", msg) from error
    return found


def failed(content: bytes) -> str | None:
    """What a SARIF log says of its own failure: an invocation that was not successful, or an error notification."""
    for run in _runs(content):
        for invocation in parts(run, "invocations"):
            notes = parts(invocation, "toolExecutionNotifications")
            errors = [str(part(note, "message").get("text", "")) for note in notes if note.get("level") == "error"]
            if invocation.get("executionSuccessful") is False or errors:
                return errors[0] if errors else "executionSuccessful is false"
    return None


def _runs(content: bytes) -> list[Item]:
    log: Item = json.loads(content)
    if "runs" not in log:
        msg = "runs"
        raise KeyError(msg)
    return parts(log, "runs")


def _run(run: Item, root: str) -> Iterator[RawFinding]:
    rules = parts(part(part(run, "tool"), "driver"), "rules")
    by_id = {str(rule.get("id")): rule for rule in rules}
    base_ids = part(run, "originalUriBaseIds")
    bases = {key: str(part(base_ids, key).get("uri") or "") for key in base_ids}
    for result in parts(run, "results"):
        if result.get("suppressions") or result.get("kind", "fail") != "fail":
            continue
        named = part(result, "rule")
        index: object = result.get("ruleIndex", named.get("index"))
        rule_id = str(result.get("ruleId") or named.get("id") or "")
        rule = by_id.get(rule_id, {})
        if not rule and isinstance(index, int) and 0 <= index < len(rules):
            rule = rules[index]
        rule_id = rule_id or str(rule.get("id") or "unnamed")
        for location in parts(result, "locations") or [{}]:
            yield _raw(result, part(location, "physicalLocation"), rule_id, rule, bases, root)


def _raw(  # noqa: PLR0917 - one result, seen with its run
    result: Item, physical: Item, rule_id: str, rule: Item, bases: Mapping[str, str], root: str
) -> RawFinding:
    artifact, region = part(physical, "artifactLocation"), part(physical, "region")
    path = _path(str(artifact.get("uri") or ""), bases.get(str(artifact.get("uriBaseId")), ""), root)
    text = str(part(result, "message").get("text") or "")
    return RawFinding(
        rule=rule_id,
        rule_name=str(rule.get("name") or part(rule, "shortDescription").get("text") or rule_id),
        severity=_severity(result, rule),
        confidence=_confidence(result, rule),
        secret=_secret(result, region, path, text).encode("utf-8", "surrogatepass"),
        path=path.encode("utf-8", "surrogatepass"),
        line=number(region.get("startLine")),
        column=number(region.get("startColumn")),
        commit=object_id(part(result, "partialFingerprints").get("commitSha")),
    )


def _path(uri: str, base: str, root: str) -> str:
    """A path inside of what was scanned, from a URI that may be absolute, escaped, or no URI at all."""
    parsed = urllib.parse.urlsplit(uri)
    path = urllib.parse.unquote(parsed.path) if parsed.scheme in {"", "file"} else uri
    if base and not path.startswith("/"):
        path = urllib.parse.unquote(urllib.parse.urlsplit(base).path) + path
    if root and PurePosixPath(path).is_relative_to(root):
        path = str(PurePosixPath(path).relative_to(root))
    return path.removeprefix("./")


def _severity(result: Item, rule: Item) -> str:
    for holder in (result, rule):
        properties = part(holder, "properties")
        found = severity.of_score(properties.get("security-severity")) or severity.of_word(properties.get("severity"))
        if found:
            return found
    return severity.of_sarif_level(result.get("level") or part(rule, "defaultConfiguration").get("level"))


def _confidence(result: Item, rule: Item) -> str:
    for holder in (result, rule):
        word = str(part(holder, "properties").get("precision") or "").casefold()
        if word:
            return {"very-high": "high", "high": "high", "medium": "medium", "low": "low"}.get(word, "")
    return ""


def _secret(result: Item, region: Item, path: str, text: str) -> str:
    """What identifies the finding: the secret where the tool tells it, else its fingerprint, else where and what."""
    properties = part(result, "properties")
    for key in _SECRET_KEYS:
        if properties.get(key):
            return str(properties[key])
    snippet = part(region, "snippet").get("text")
    if snippet:
        return str(snippet)
    prints = part(result, "fingerprints") or part(result, "partialFingerprints")
    return json.dumps(prints, sort_keys=True) if prints else f"{path}\0{text}"
