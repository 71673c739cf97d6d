"""The canary at the start: scanners that find it are used, quiet ones are refused (reliability.md 2 C 83)."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from resweep.runner.scanners import canary
from resweep.runner.scanners.base import Needs
from resweep.runner.scanners.custom import CommandScanner, CommandSpec, Format
from resweep.runner.scanners.detect_secrets import DetectSecrets
from resweep.runner.scanners.kingfisher import Kingfisher, KingfisherSettings
from tests.support.processes import RULE_CACHE, Bench, bench, kingfisher


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path / "data") as made:
        yield made


def check(parts: Bench, *scanners: object) -> list[str | None]:
    context = parts.context
    results = canary.check(scanners, guard=context.guard, git=context.git, clock=context.clock)  # type: ignore[arg-type]
    return [result.fault.code if result.fault else None for result in results]


def quiet(*script: str, needs: Needs = Needs.REPOSITORY) -> CommandScanner:
    command = (sys.executable, "-c", *script, f"{{{needs}}}")
    return CommandScanner(CommandSpec(name="quiet", command=command, format=Format.JSONL, needs=needs))


def test_the_built_in_scanners_find_it(parts: Bench) -> None:
    assert check(parts, kingfisher(), DetectSecrets()) == [None, None]


def test_a_scanner_that_reads_nothing_and_says_clean_is_refused(parts: Bench) -> None:
    assert check(parts, quiet("pass"), kingfisher()) == ["scanner_canary", None]


def test_a_scanner_that_reports_something_else_is_refused(parts: Bench) -> None:
    line = """print('{"rule": "r", "path": "settings.env", "secret": "something else", "line": 1}')"""
    assert check(parts, quiet(line.replace("{", "{{").replace("}", "}}"))) == ["scanner_canary"]


def test_a_scanner_that_is_not_installed_is_refused_by_name(parts: Bench) -> None:
    spec = CommandSpec(
        name="absent", command=("no-such-scanner", "{checkout}"), format=Format.SARIF, needs=Needs.CHECKOUT
    )
    context = parts.context
    (result,) = canary.check([CommandScanner(spec)], guard=context.guard, git=context.git, clock=context.clock)
    assert result.fault is not None
    assert result.fault.code == "scanner_missing"
    assert "no-such-scanner" in str(result.fault)


def test_a_version_that_the_adapter_was_not_made_for_is_refused(parts: Bench, tmp_path: Path) -> None:
    program = tmp_path / "kingfisher"
    program.write_text("#!/bin/sh\necho kingfisher 3.1.0\n")
    program.chmod(0o755)
    scanner = Kingfisher(KingfisherSettings(rule_cache=RULE_CACHE, program=str(program)))
    assert check(parts, scanner) == ["scanner_version"]
