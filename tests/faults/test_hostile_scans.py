"""F13: hostile repositories through both built-in scanners: nothing of theirs runs, budgets hold, output is safe."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resweep.runner.scanners.checkout_tree import TreeLimits
from resweep.runner.scanners.detect_secrets import DetectSecrets
from resweep.runner.scanners.limits import Limits
from resweep.runner.scanners.scan import scan_target
from resweep.schema.errors import SourceFault, TargetFault
from resweep.schema.records import ScanOutcome, ScanReport
from resweep.schema.text import display, store_text
from tests.support.hostile import CASES
from tests.support.processes import Bench, bench, claim_of, kingfisher, token

SECONDS = 20.0
LIMITS = Limits(
    seconds=SECONDS,
    memory_bytes=1 << 30,
    processes=64,
    file_bytes=256 << 20,
    output_bytes=32 << 20,
    work_bytes=512 << 20,
)
# Where a scanner must still find the secret that every case (but for a few that hide it) holds at its first commit.
BLIND = {
    "git_file_to_elsewhere",
    "corrupt_objects",
    "missing_objects",
    "config_malformed",
    "alternates_outside",
    "head_that_leaves",
    "tree_with_dots_and_slashes",
    "tree_that_is_a_blob",
    "tree_with_odd_modes",
    "links_that_leave",
    "ref_that_is_a_link",
    "replace_refs_and_grafts",
    "wide_tree",  # its budget ends both scanners on a busy machine
}


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path / "data", limits=LIMITS, tree_limits=TreeLimits(max_files=5_000)) as made:
        yield made


def texts(report: ScanReport) -> Iterator[str]:
    """Every text of a report that somebody may see."""
    yield report.error or ""
    for entry in report.not_scanned:
        yield from (entry.reason, *entry.examples)
    for finding in report.findings:
        yield from (finding.rule, finding.rule_name, finding.masked)
        for place in finding.places:
            yield display(place.path)
            yield display(place.mark)


def harmless(text: str) -> bool:
    """No control character, no line break, nothing that turns or hides text."""
    return all(c.isprintable() for c in text)


@pytest.mark.parametrize("name", sorted(CASES))
def test_f13(name: str, tmp_path: Path, parts: Bench, record_property: Callable[[str, object], None]) -> None:
    owned = tmp_path / "OWNED"
    folder = tmp_path / "far"
    CASES[name](folder, f"touch {owned}")
    started = time.monotonic()
    faults: list[str] = []
    said: list[str] = []
    reports: tuple[ScanReport, ...] = ()
    try:
        with parts.cache.hold(str(folder)) as held:
            reports = scan_target(claim_of(str(folder)), (), held, [kingfisher(), DetectSecrets()], parts.context)
    except (TargetFault, SourceFault) as fault:
        faults.append(fault.code)
        said.append(str(fault))
    seconds = time.monotonic() - started
    outcomes = [f"{r.scanner}: {r.outcome} {len(r.findings)} {r.error_code or ''}".strip() for r in reports]
    line = {"case": name, "seconds": round(seconds, 1), "outcomes": outcomes, "faults": faults}
    record_property("hostile", json.dumps(line))
    print(json.dumps(line))
    assert all(map(harmless, said)), said
    assert not owned.exists(), "a command of the repository was run"
    assert not list(tmp_path.rglob("owned*")), "a file was written outside of its folder"
    assert seconds < 2 * SECONDS + 150  # two scanners, and git's own work on a busy machine
    left = {path.name: path.read_text() for path in parts.guard.folder.iterdir()}
    assert left in ({}, {"guardian.log": ""})
    secret = token(1)
    for report in reports:
        assert report.outcome in set(ScanOutcome)
        for text in texts(report):
            assert harmless(text), repr(text)
            assert secret not in text
            assert store_text(text) == text
    if name not in BLIND:
        assert any(report.findings for report in reports), outcomes
    # The worker lives, and scans the next target as if nothing had been.
    runner = parts.guard.command_runner()
    done = runner(["true"], cwd=tmp_path, env={"PATH": os.defpath}, seconds=10.0, output_limit_bytes=10)
    assert done.exit_code == 0


def test_there_are_at_least_thirty_cases() -> None:
    assert len(CASES) >= 30
