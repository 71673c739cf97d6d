"""Reports as scanners write them, well and badly: parsers, presets, configured commands (reliability.md 2 C)."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resweep.runner.scanners import jsonl, sarif, severity
from resweep.runner.scanners.base import LimitHit, Needs, Reading, ScanFault, ScanJob
from resweep.runner.scanners.custom import CommandScanner, CommandSpec, Format
from resweep.runner.scanners.ignore import NO_REASON, MarkedLines
from resweep.runner.scanners.limits import Limits
from resweep.runner.scanners.presets import PRESETS
from resweep.runner.scanners.process import Guard
from resweep.schema.errors import ConfigFault

# --- JSON lines --------------------------------------------------------------------------------------------------

ITEM = {"rule": "r", "path": "a/b", "secret": "s3cret", "line": 3, "column": 5, "severity": "HIGH"}


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"", 0),
        (b"null", 0),
        (b"[]", 0),
        (b"\n\n", 0),
        (json.dumps(ITEM).encode(), 1),
        (json.dumps([ITEM, ITEM]).encode(), 2),
        ((json.dumps(ITEM) + "\n" + json.dumps(ITEM) + "\n").encode(), 2),
        ((json.dumps(ITEM, indent=2) + json.dumps([ITEM]) + "null").encode(), 2),
        (b"\xef\xbb\xbf" + json.dumps(ITEM).encode(), 1),
    ],
)
def test_no_result_and_several_documents_are_read(content: bytes, count: int) -> None:
    assert len(jsonl.read(content, name="x")) == count


@pytest.mark.parametrize("content", [b"{", b"hello", b'{"rule": 1}', b"[1]", b'{"rule":"r"}', b"[" * 100_000])
def test_half_a_report_is_no_report(content: bytes) -> None:
    with pytest.raises(ScanFault) as fault:
        jsonl.read(content, name="x")
    assert fault.value.code == "scanner_report"


def test_our_own_words_are_read() -> None:
    (raw,) = jsonl.read(json.dumps({**ITEM, "commit": "A" * 40, "confidence": "High"}).encode(), name="x")
    assert (raw.rule, raw.path, raw.secret, raw.line, raw.column) == ("r", b"a/b", b"s3cret", 3, 5)
    assert (raw.severity, raw.confidence, raw.commit) == ("high", "high", "a" * 40)
    (bytes_of,) = jsonl.read(b'{"rule":"r","path":"p","secret_base64":"/wA="}', name="x")
    assert bytes_of.secret == b"\xff\x00"
    (placed,) = jsonl.read(b'{"rule":"r","path":"p","line":-1,"column":true,"commit":"--option"}', name="x")
    assert (placed.line, placed.column, placed.commit) == (None, None, None)


def test_a_finding_never_prints_its_secret() -> None:
    (raw,) = jsonl.read(json.dumps(ITEM).encode(), name="x")
    assert "s3cret" not in repr(raw)
    assert "s3cret" not in repr(Reading(findings=(raw,)))


# --- SARIF -------------------------------------------------------------------------------------------------------


def log(*results: dict[str, Any], **run: Any) -> bytes:
    rules = [
        {
            "id": "R1",
            "shortDescription": {"text": "Rule one"},
            "properties": {"security-severity": "9.1", "precision": "very-high"},
        },
        {"id": "R2", "defaultConfiguration": {"level": "note"}},
    ]
    runs = [{"tool": {"driver": {"name": "t", "rules": rules}}, "results": list(results), **run}]
    return json.dumps({"version": "2.1.0", "runs": runs}).encode()


def at(uri: str, **region: Any) -> list[dict[str, Any]]:
    return [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}]


def test_sarif_results_are_read() -> None:
    snippet = {"text": "key=abc"}
    content = log(
        {"ruleId": "R1", "locations": at("src/a%20b.py", startLine=3, startColumn=7, snippet=snippet)},
        {"ruleIndex": 1, "locations": at("./x", startLine=1, startColumn=0), "message": {"text": "m"}},
        {"rule": {"id": "R9"}, "level": "error"},
    )
    one, two, three = sarif.read(content, name="x")
    assert (one.rule, one.rule_name, one.severity, one.confidence) == ("R1", "Rule one", "critical", "high")
    assert (one.path, one.line, one.column, one.secret) == (b"src/a b.py", 3, 7, b"key=abc")
    assert (two.rule, two.severity, two.path, two.column, two.secret) == ("R2", "low", b"x", None, b"x\0m")
    assert (three.rule, three.severity, three.path) == ("R9", "high", b"")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///srv/tree/a/b", b"a/b"),
        ("/srv/tree/a", b"a"),
        ("a/../b", b"a/../b"),
        ("file:///etc/passwd", b"/etc/passwd"),
        ("a\nb", b"a\nb"),
        ("https://example.org/x", b"https://example.org/x"),
    ],
)
def test_sarif_paths(uri: str, path: bytes) -> None:
    (raw,) = sarif.read(log({"ruleId": "R1", "locations": at(uri)}), name="x", root="/srv/tree")
    assert raw.path.replace(b"\n", b"") == path.replace(b"\n", b"")


def test_suppressed_and_passing_results_are_no_findings() -> None:
    content = log({"ruleId": "R1", "suppressions": [{"kind": "inSource"}]}, {"ruleId": "R1", "kind": "pass"})
    assert sarif.read(content, name="x") == []


@pytest.mark.parametrize(
    "content", [b"", b"null", b"{}", b"[]", b'{"runs": 1}', b'{"runs": [1]}', b'{"runs":[{"results":1}]}']
)
def test_what_is_no_sarif_fails(content: bytes) -> None:
    with pytest.raises(ScanFault) as fault:
        sarif.read(content, name="x")
    assert fault.value.code == "scanner_report"


def test_a_log_that_says_it_failed_is_believed() -> None:
    assert sarif.failed(log(invocations=[{"executionSuccessful": True}])) is None
    assert sarif.failed(log(invocations=[{"executionSuccessful": False}])) == "executionSuccessful is false"
    note = {"level": "error", "message": {"text": "no rules"}}
    assert (
        sarif.failed(log(invocations=[{"executionSuccessful": True, "toolExecutionNotifications": [note]}]))
        == "no rules"
    )


# --- Severity ----------------------------------------------------------------------------------------------------


def test_severities() -> None:
    assert [severity.of_score(n) for n in ("9.0", 7, "4", 0.1, 0, "x", "nan", 11)] == [
        "critical", "high", "medium", "low", "info", None, None, None,
    ]  # fmt: skip
    assert severity.of_secret("betterleaks.private-key", "high") == "critical"
    assert severity.of_secret("betterleaks.generic-api-key", "medium") == "medium"
    assert severity.of_secret("betterleaks.private-key", "low") == "low"
    assert [severity.of_word(word) for word in ("ERROR", " Moderate", "what", None)] == ["high", "medium", None, None]


# --- Inline marks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (b"key = 'x'  # resweep:ignore made up", 1, "made up"),
        (b"key = 'x'  // resweep:ignore: made up */ more", 1, "made up"),
        (b"key = 'x'  <!-- resweep: ignore -->", 1, NO_REASON),
        (b"a\nkey = 'x'  # gitleaks:allow", 2, NO_REASON),
        (b"key = 'x'  # pragma: allowlist secret", 1, NO_REASON),
        (b"# resweep:ignore-next-line because\nkey = 'x'", 2, "because"),
        (b"# pragma: allowlist nextline secret\nkey = 'x'", 2, NO_REASON),
        (b"# resweep:ignore-next-line because\n\nkey = 'x'", 3, ""),
        (b"key = 'x'\n# resweep:ignore no", 1, ""),
        (b"# resweep:ignore-something-else", 1, ""),
        (b"nothing here", 1, ""),
        (b"# resweep:ignore x", 7, ""),
        (b"# resweep:ignore x", None, ""),
        (b"# resweep:ignore \x1b[2Jx\r\n", 1, "[2Jx"),
    ],
)
def test_marks(text: bytes, line: int | None, reason: str) -> None:
    assert MarkedLines(text).mark(line) == reason


def test_a_mark_anywhere_on_the_lines_of_a_secret_counts() -> None:
    text = b"-----BEGIN KEY-----\nabc\n-----END KEY----- # resweep:ignore test key\n"
    assert MarkedLines(text).mark(1, lines=3) == "test key"
    assert MarkedLines(text).mark(1, lines=2) == ""


def test_many_findings_in_one_large_marked_file_are_fast() -> None:
    lines = MarkedLines(b"x\n" * 200_000 + b"# resweep:ignore last")
    assert sum(bool(lines.mark(n)) for n in range(1, 200_002)) == 1


# --- Configured commands -----------------------------------------------------------------------------------------


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    with Guard(tmp_path / "runs") as made:
        yield made


def scanner(script: str, **changes: Any) -> CommandScanner:
    values: dict[str, Any] = {
        "name": "mine",
        "command": (
            sys.executable,
            "-I",
            "-S",
            "-c",
            script.replace("{", "{{").replace("}", "}}"),
            "{checkout}",
            "{report}",
        ),
        "format": Format.JSONL,
        "needs": Needs.CHECKOUT,
    }
    return CommandScanner(CommandSpec(**{**values, **changes}))


def read(guard: Guard, made: CommandScanner, tmp_path: Path, **limits: Any) -> Reading:
    values: dict[str, Any] = {"seconds": 20.0, **limits}
    made.prepare(guard)
    checkout = tmp_path / "tree"
    checkout.mkdir(exist_ok=True)
    with guard.work_folder() as work:
        job = ScanJob(repository=checkout, checkout=checkout, since=None, work=work, limits=Limits(**values))
        return made.scan(guard, job)


WRITE = "import sys; open(sys.argv[2], 'w').write('''%s'''); sys.exit(%d)"


def test_a_configured_command_is_run_and_read(guard: Guard, tmp_path: Path) -> None:
    line = json.dumps({**ITEM, "path": str(tmp_path / "tree" / "a" / "b")})
    made = scanner(WRITE % (line, 3), findings_exit_codes=frozenset({3}))
    (raw,) = read(guard, made, tmp_path).findings
    assert raw.path == b"a/b"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (WRITE % ("[]", 3), "scanner_report"),  # says findings, shows none
        (WRITE % ("[]", 4), "scanner_exit"),
        (WRITE % ("{", 0), "scanner_report"),
        ("pass", "scanner_report"),  # wrote no report
        ("import os; os.kill(os.getpid(), 11)", "scanner_killed"),
    ],
)
def test_a_configured_command_that_fails_is_never_clean(guard: Guard, tmp_path: Path, script: str, code: str) -> None:
    with pytest.raises(ScanFault) as fault:
        read(guard, scanner(script, findings_exit_codes=frozenset({3})), tmp_path)
    assert fault.value.code == code


def test_a_limit_says_which(guard: Guard, tmp_path: Path) -> None:
    with pytest.raises(LimitHit) as hit:
        read(guard, scanner("import time; time.sleep(20)"), tmp_path, seconds=0.3)
    assert (hit.value.code, hit.value.limit) == ("time_limit", "time")


def test_what_a_scanner_said_reaches_the_error_without_its_secrets(guard: Guard, tmp_path: Path) -> None:
    script = (
        "import sys; sys.stderr.write('bad \\x1b[2J key ghp_abcdefghijklmnopqrstuvwxyz0123456789 \\n'); sys.exit(9)"
    )
    with pytest.raises(ScanFault) as fault:
        read(guard, scanner(script), tmp_path)
    assert "exit code 9" in str(fault.value)
    assert "bad" in str(fault.value)
    assert "abcdefghijklm" not in str(fault.value)
    assert str(fault.value).isprintable()


def test_fingerprints_follow_program_and_settings(guard: Guard) -> None:
    one, same, other = scanner("pass"), scanner("pass"), scanner("pass", findings_exit_codes=frozenset({7}))
    for made in (one, same, other):
        made.prepare(guard)
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"command": ()}, "command is empty"),
        ({"command": ("x",)}, "must hold {checkout}"),
        ({"command": ("x", "{repository}")}, "must hold {checkout}"),
        ({"command": ("x", "{checkout}", "{reprot}")}, "{reprot}"),
        ({"command": ("x", "{checkout}", "{")}, "lone brace"),
        ({"command": ("x", "{checkout}", "{since}")}, "since_command"),
        ({"since_command": ("x", "{checkout}", "{since}")}, "needs = repository"),
        ({"clean_exit_codes": frozenset({0, 3}), "findings_exit_codes": frozenset({3})}, "one meaning"),
    ],
)
def test_a_command_that_cannot_work_is_refused_with_the_key(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigFault) as fault:
        scanner("pass", **changes)
    assert "mine" in str(fault.value) or "brace" in str(fault.value)
    assert words in str(fault.value)


# --- Presets: samples made by hand, the programs cannot be had here ---------------------------------------------------


def test_every_preset_is_sound() -> None:
    for spec in PRESETS.values():
        spec.check()
        assert spec.version_command
    assert set(PRESETS) == {"gitleaks", "trufflehog", "semgrep", "trivy"}


def test_a_gitleaks_report_is_read() -> None:
    item = {
        "RuleID": "github-pat", "Description": "GitHub token", "StartLine": 2, "EndLine": 2, "StartColumn": 15,
        "Match": "x", "Secret": "ghp_x", "File": "a/b.env", "Commit": "a" * 40, "Author": "x", "Fingerprint": "y",
    }  # fmt: skip
    (raw,) = jsonl.read(json.dumps([item]).encode(), name="gitleaks", convert=PRESETS["gitleaks"].convert)
    assert (raw.rule, raw.path, raw.line, raw.column, raw.commit) == ("github-pat", b"a/b.env", 2, 15, "a" * 40)
    assert jsonl.read(b"null", name="gitleaks", convert=PRESETS["gitleaks"].convert) == []


def test_a_trufflehog_report_is_read_among_its_log_lines() -> None:
    item = {
        "SourceMetadata": {"Data": {"Git": {"commit": "b" * 40, "file": "x.py", "line": 9}}},
        "DetectorName": "Github", "Verified": False, "Raw": "ghp_x", "RawV2": "",
    }  # fmt: skip
    content = b'{"level":"info-0","msg":"finished scanning","chunks":3}\n' + json.dumps(item).encode()
    (raw,) = jsonl.read(content, name="trufflehog", convert=PRESETS["trufflehog"].convert)
    assert (raw.rule, raw.path, raw.line, raw.secret) == ("trufflehog.Github", b"x.py", 9, b"ghp_x")
