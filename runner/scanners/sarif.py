"""SARIF 2.1.0 as scanners write it, read for its findings; whatever is missing or odd in it is taken with care."""

import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from . import severity
from .base import RawFinding, ScanFault
from .jsonl import number, object_id

_SECRET_KEYS = ("secret", "match", "snippet")


def read(content: bytes, *, name: str, root: str = "") -> list[RawFinding]:
    """All results of all runs. ``root`` is the folder that was scanned: paths below it are given relative to it.

    An empty file is no report and fails: a SARIF writer writes an empty run. Suppressed results are left out, as the
    tool's own ignore rules said; so are those with ``kind`` other than ``fail``. Raises ``ScanFault``.
    """
    try:
        log = json.loads(content)
        runs = log["runs"]
        found = [raw for run in runs for raw in _run(run, root)]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        msg = f"{name}: its report is no SARIF 2.1.0 ({type(error).__name__}: {error})"
        raise ScanFault("scanner_report", msg) from error
    return found


def failed(content: bytes) -> str | None:
    """What a SARIF log says of its own failure: an invocation that was not successful, or an error notification."""
    for run in json.loads(content).get("runs") or []:
        for invocation in run.get("invocations") or []:
            notes = invocation.get("toolExecutionNotifications") or []
            errors = [note["message"].get("text", "") for note in notes if note.get("level") == "error"]
            if invocation.get("executionSuccessful") is False or errors:
                return errors[0] if errors else "executionSuccessful is false"
    return None


def _run(run: Mapping[str, Any], root: str) -> Iterator[RawFinding]:
    driver = run["tool"]["driver"]
    rules: Sequence[Mapping[str, Any]] = driver.get("rules") or []
    by_id = {str(rule["id"]): rule for rule in rules}
    bases = {key: str(base.get("uri", "")) for key, base in (run.get("originalUriBaseIds") or {}).items()}
    for result in run.get("results") or []:
        if result.get("suppressions") or result.get("kind", "fail") != "fail":
            continue
        index = result.get("ruleIndex", (result.get("rule") or {}).get("index", -1))
        rule_id = str(result.get("ruleId") or (result.get("rule") or {}).get("id") or "")
        rule = by_id.get(rule_id) or (rules[index] if 0 <= index < len(rules) else {})
        rule_id = rule_id or str(rule.get("id") or "unnamed")
        for location in result.get("locations") or [{}]:
            yield _raw(result, location.get("physicalLocation") or {}, rule_id, rule, bases, root)


def _raw(
    result: Mapping[str, Any],
    physical: Mapping[str, Any],
    rule_id: str,
    rule: Mapping[str, Any],
    bases: Mapping[str, str],
    root: str,
) -> RawFinding:
    artifact = physical.get("artifactLocation") or {}
    region = physical.get("region") or {}
    path = _path(str(artifact.get("uri") or ""), bases.get(str(artifact.get("uriBaseId")), ""), root)
    text = str((result.get("message") or {}).get("text") or "")
    return RawFinding(
        rule=rule_id,
        rule_name=str(rule.get("name") or (rule.get("shortDescription") or {}).get("text") or rule_id),
        severity=_severity(result, rule),
        confidence=_confidence(result, rule),
        secret=_secret(result, region, path, text).encode("utf-8", "surrogatepass"),
        path=path.encode("utf-8", "surrogatepass"),
        line=number(region.get("startLine")),
        column=number(region.get("startColumn")),
        commit=object_id((result.get("partialFingerprints") or {}).get("commitSha")),
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


def _severity(result: Mapping[str, Any], rule: Mapping[str, Any]) -> str:
    for holder in (result, rule):
        properties = holder.get("properties") or {}
        found = severity.of_score(properties.get("security-severity")) or severity.of_word(properties.get("severity"))
        if found:
            return found
    level = result.get("level") or (rule.get("defaultConfiguration") or {}).get("level")
    return severity.of_sarif_level(level)


def _confidence(result: Mapping[str, Any], rule: Mapping[str, Any]) -> str:
    for holder in (result, rule):
        word = str((holder.get("properties") or {}).get("precision") or "").casefold()
        if word:
            return {"very-high": "high", "high": "high", "medium": "medium", "low": "low"}.get(word, "")
    return ""


def _secret(result: Mapping[str, Any], region: Mapping[str, Any], path: str, text: str) -> str:
    """What identifies the finding: the secret where the tool tells it, else its own fingerprint, else the place's text."""
    properties = result.get("properties") or {}
    for key in _SECRET_KEYS:
        if isinstance(properties.get(key), str) and properties[key]:
            return str(properties[key])
    snippet = (region.get("snippet") or {}).get("text")
    if snippet:
        return str(snippet)
    prints = result.get("fingerprints") or result.get("partialFingerprints") or {}
    return json.dumps(prints, sort_keys=True) if prints else f"{path}\0{text}"
