"""A claim's scan with the real kingfisher over real repositories: scope, coverage, places, work done."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kingfisher import get_binary_path  # pyright: ignore[reportMissingTypeStubs]

from resweep.runner.scanners.base import ScanInterrupted
from resweep.runner.scanners.kingfisher import SETTINGS, Kingfisher
from resweep.runner.scanners.scan import scan_target
from resweep.schema.records import Coverage, ScanOutcome, ScanReport
from tests.support.processes import (
    RULE_CACHE,
    Bench,
    bench,
    claim_of,
    commit,
    git,
    kingfisher,
    new_repository,
    token,
    token_line,
)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path / "data") as made:
        yield made


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "far")


def sweep(
    parts: Bench, far: Path, coverage: tuple[Coverage, ...] = (), scanner: Kingfisher | None = None
) -> ScanReport:
    address = str(far)
    with parts.cache.hold(address) as held:
        (report,) = scan_target(claim_of(address), coverage, held, [scanner or kingfisher()], parts.context)
    return report


def covered(report: ScanReport) -> tuple[Coverage, ...]:
    assert report.coverage is not None, report
    return (report.coverage,)


def bare_kingfisher(far: Path, folder: Path) -> set[tuple[str, str, str]]:
    """What the scanner finds by itself on a fresh clone: (path, rule, secret)."""
    clone = folder / "clone.git"
    git(folder, "clone", "-q", "--bare", "--no-local", str(far), str(clone))
    report = folder / "report.json"
    subprocess.run(
        [
            get_binary_path(),
            "scan",
            str(clone),
            *SETTINGS,
            "--rule-cache-dir",
            str(RULE_CACHE),
            "--format",
            "json",
            "-o",
            str(report),
        ],
        env={"PATH": os.defpath, "HOME": str(folder)},
        check=False,
        capture_output=True,
    )
    return {
        (f["finding"]["path"].removeprefix(f"{clone}/"), f["rule"]["id"], f["finding"]["snippet"])
        for f in json.loads(report.read_bytes())["findings"]
    }


def test_a_first_scan_finds_what_the_bare_scanner_finds_on_a_fresh_clone(
    parts: Bench, repository: Path, tmp_path: Path
) -> None:
    commit(repository, {"a.env": token_line(1), "deep/er/b.env": "x\n" + token_line(2), "plain": "nothing\n"})
    commit(repository, {"a.env": None, "copy": token_line(1)})
    git(repository, "checkout", "-q", "-b", "side")
    commit(repository, {"side.env": token_line(3), "odd \n name": token_line(4)})
    blob = git(repository, "hash-object", "-w", "--stdin", stdin=token_line(5).encode())
    git(repository, "tag", "loose", blob)
    git(repository, "checkout", "-q", "main")
    (tmp_path / "bare").mkdir()
    bare = bare_kingfisher(repository, tmp_path / "bare")
    report = sweep(parts, repository)
    assert report.outcome is ScanOutcome.FINDINGS
    assert report.complete
    identify = parts.context.key.identify
    ours = {(place.path, f.rule, f.identity) for f in report.findings for place in f.places}
    target = "git\0name:a/repository"
    assert ours == {(path, rule, identify(target, rule, secret.encode())) for path, rule, secret in bare}
    assert len(ours) == 5


def test_places_are_exact_and_say_whether_they_stand_in_the_head(parts: Bench, repository: Path) -> None:
    first = commit(repository, {"gone.env": "x\n\n" + token_line(1), "stays.env": token_line(2)})
    commit(repository, {"gone.env": None})
    report = sweep(parts, repository)
    places = {place.path: place for finding in report.findings for place in finding.places}
    gone, stays = places["gone.env"], places["stays.env"]
    assert (gone.line, gone.column, gone.commit, gone.in_head) == (3, 15, first, False)
    assert gone.blob == git(repository, "rev-parse", f"{first}:gone.env")
    assert (stays.line, stays.column, stays.in_head) == (1, 15, True)
    assert report.head == git(repository, "rev-parse", "main")


def test_clear_text_is_in_no_part_of_a_report(parts: Bench, repository: Path) -> None:
    commit(repository, {"a.env": token_line(1)})
    report = sweep(parts, repository)
    assert token(1) not in repr(report)
    assert token(1)[6:20] not in repr(report)
    assert report.findings[0].masked == "ghp_… (40 characters)"


def test_a_repository_that_did_not_change_is_unchanged(parts: Bench, repository: Path) -> None:
    commit(repository, {"a.env": token_line(1)})
    first = sweep(parts, repository)
    second = sweep(parts, repository, covered(first))
    assert second.outcome is ScanOutcome.UNCHANGED
    assert not second.complete
    assert second.coverage == first.coverage
    assert second.bytes_read == 0


def test_another_fingerprint_is_never_unchanged(parts: Bench, repository: Path) -> None:
    commit(repository, {"a.env": token_line(1)})
    first = sweep(parts, repository)
    old = replace(covered(first)[0], fingerprint=b"of another version")
    second = sweep(parts, repository, (old,))
    assert second.outcome is ScanOutcome.FINDINGS
    assert second.complete


@pytest.mark.parametrize("where", ["main", "side", "tag", "old date", "merge"])
def test_a_push_is_read_as_far_as_it_is_new_and_closes_nothing(parts: Bench, repository: Path, where: str) -> None:
    commit(repository, {"a.env": token_line(1), "big": "filler\n" * 20_000})
    first = sweep(parts, repository)
    if where == "side":
        git(repository, "checkout", "-q", "-b", "side")
    if where == "merge":
        git(repository, "checkout", "-q", "-b", "side")
        commit(repository, {"s": "s\n"})
        git(repository, "checkout", "-q", "main")
        commit(repository, {"m": "m\n"})
        git(repository, "merge", "-q", "--no-commit", "side")
        commit(repository, {"b.env": token_line(2)})
    else:
        commit(repository, {"b.env": token_line(2)})
    if where == "tag":
        git(repository, "tag", "-a", "-m", "a tag", "v1")
        git(repository, "update-ref", "refs/heads/main", "HEAD~1")
        git(repository, "checkout", "-q", "-f", "main")
    second = sweep(parts, repository, covered(first))
    assert second.outcome is ScanOutcome.FINDINGS
    assert not second.complete
    assert 0 < second.bytes_read < 1000
    assert [p.path for f in second.findings for p in f.places] == ["b.env"]
    third = sweep(parts, repository, covered(second))
    assert third.outcome is ScanOutcome.UNCHANGED


def test_a_branch_that_names_old_content_only_is_unchanged_and_then_covered(parts: Bench, repository: Path) -> None:
    commit(repository, {"a.env": token_line(1)})
    commit(repository, {"b": "b\n"})
    first = sweep(parts, repository)
    git(repository, "branch", "again", "HEAD~1")
    second = sweep(parts, repository, covered(first))
    assert second.outcome is ScanOutcome.UNCHANGED
    assert covered(second)[0].revision != covered(first)[0].revision


def test_rewritten_history_is_read_whole_and_without_what_it_dropped(parts: Bench, repository: Path) -> None:
    commit(repository, {"keep.env": token_line(1)})
    commit(repository, {"bad.env": token_line(2)})
    first = sweep(parts, repository)
    assert len(first.findings) == 2
    git(repository, "reset", "-q", "--hard", "HEAD~1")
    commit(repository, {"good": "fine\n"})
    second = sweep(parts, repository, covered(first))
    assert second.complete
    assert {p.path for f in second.findings for p in f.places} == {"keep.env"}


def test_rewritten_history_after_an_incremental_scan_drops_it_too(parts: Bench, repository: Path) -> None:
    commit(repository, {"keep.env": token_line(1)})
    first = sweep(parts, repository)
    commit(repository, {"bad.env": token_line(2)})
    second = sweep(parts, repository, covered(first))
    commit(repository, {"worse.env": token_line(3)})
    third = sweep(parts, repository, covered(second))
    assert not third.complete
    git(repository, "reset", "-q", "--hard", "HEAD~2")
    fourth = sweep(parts, repository, covered(third))
    assert fourth.complete
    assert {p.path for f in fourth.findings for p in f.places} == {"keep.env"}


def test_a_deleted_branch_takes_its_findings_along(parts: Bench, repository: Path) -> None:
    commit(repository, {"keep.env": token_line(1)})
    git(repository, "checkout", "-q", "-b", "side")
    commit(repository, {"bad.env": token_line(2)})
    git(repository, "checkout", "-q", "main")
    first = sweep(parts, repository)
    git(repository, "branch", "-q", "-D", "side")
    second = sweep(parts, repository, covered(first))
    assert second.complete
    assert {p.path for f in second.findings for p in f.places} == {"keep.env"}


def test_a_copy_that_lost_covered_history_is_read_whole(parts: Bench, repository: Path) -> None:
    commit(repository, {"a.env": token_line(1)})
    first = sweep(parts, repository)
    parts.cache.discard(str(repository))
    commit(repository, {"b.env": token_line(2)})
    strange = replace(covered(first)[0], tips=("0123456789" * 4,))
    second = sweep(parts, repository, (strange,))
    assert second.complete
    assert len(second.findings) == 2


def test_an_empty_repository_is_empty(parts: Bench, repository: Path) -> None:
    report = sweep(parts, repository)
    assert report.outcome is ScanOutcome.EMPTY
    assert report.complete
    assert sweep(parts, repository, covered(report)).outcome in {ScanOutcome.EMPTY, ScanOutcome.UNCHANGED}


def test_a_repository_of_empty_files_is_clean_not_a_failure(parts: Bench, repository: Path) -> None:
    commit(repository, {"empty": b""})
    report = sweep(parts, repository)
    assert report.outcome is ScanOutcome.CLEAN
    assert report.blobs == 1


def test_a_repository_that_the_scanner_cannot_open_fails(parts: Bench, tmp_path: Path) -> None:
    far = new_repository(tmp_path / "sha256", "--object-format=sha256")
    commit(far, {"a.env": token_line(1)})
    report = sweep(parts, far)
    assert report.outcome is ScanOutcome.FAILED
    assert report.error_code == "scanner_error"
    assert report.coverage is None
    assert "sha256" in (report.error or "")


def test_a_tag_on_a_blob_is_read_by_a_whole_scan(parts: Bench, repository: Path) -> None:
    commit(repository, {"a": "a\n"})
    first = sweep(parts, repository)
    blob = git(repository, "hash-object", "-w", "--stdin", stdin=token_line(5).encode())
    git(repository, "tag", "loose", blob)
    second = sweep(parts, repository, covered(first))
    assert [p.blob for f in second.findings for p in f.places] == [blob]
    assert sweep(parts, repository, covered(second)).outcome is ScanOutcome.UNCHANGED


def test_a_blob_that_was_left_out_is_counted_and_never_clean(tmp_path: Path, repository: Path) -> None:
    commit(repository, {"small": "small\n", "large": os.urandom(300_000).hex()})
    with bench(tmp_path / "data", max_blob_bytes=100_000) as parts:
        first = sweep(parts, repository)
        assert first.outcome is ScanOutcome.LIMITED
        assert [(entry.reason, entry.count) for entry in first.not_scanned] == [("blob_too_large", 1)]
        assert sweep(parts, repository, covered(first)).outcome is ScanOutcome.UNCHANGED


def test_submodules_and_lfs_pointers_are_counted(parts: Bench, repository: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
    commit(repository, {".gitattributes": "*.bin filter=lfs\n", "a.bin": pointer, "b.bin": pointer + "\n"})
    git(repository, "update-index", "--add", "--cacheinfo", "160000," + "1" * 40 + ",vendor/thing")
    git(repository, "commit", "-q", "-m", "a submodule")
    report = sweep(parts, repository)
    assert {entry.reason: entry.count for entry in report.not_scanned} == {"lfs_pointer": 2, "submodule": 1}
    assert report.outcome is ScanOutcome.CLEAN


def test_an_inline_mark_stands_beside_its_place_with_its_reason(parts: Bench, repository: Path) -> None:
    commit(
        repository,
        {
            "a.py": f'A = "{token(1)}"  # resweep:ignore revoked in 2020\n',
            "b.py": f'# resweep:ignore-next-line made up for a test\nB = "{token(2)}"\n',
            "c.py": f'C = "{token(3)}"  # gitleaks:allow\n',
            "d.py": f'D = "{token(4)}"\n',
        },
    )
    report = sweep(parts, repository)
    marks = {place.path: place.mark for finding in report.findings for place in finding.places}
    assert marks == {
        "a.py": "revoked in 2020",
        "b.py": "made up for a test",
        "c.py": "inline mark without a reason",
        "d.py": "",
    }


def test_a_cancelled_scan_has_no_result(parts: Bench, repository: Path) -> None:
    commit(repository, {"a.env": token_line(1)})
    cancel = threading.Event()
    cancel.set()
    with parts.cache.hold(str(repository)) as held, pytest.raises(ScanInterrupted):
        scan_target(claim_of("x"), (), held, [kingfisher()], replace(parts.context, cancel=cancel))


def test_a_push_of_an_archive_only_does_not_read_everything_again(parts: Bench, repository: Path) -> None:
    commit(repository, {"a.env": token_line(1)})
    first = sweep(parts, repository)
    commit(repository, {"release.zip": os.urandom(500)})
    second = sweep(parts, repository, covered(first))
    assert not second.complete
    assert second.outcome in {ScanOutcome.CLEAN, ScanOutcome.UNCHANGED}
    assert sweep(parts, repository, covered(second)).outcome is ScanOutcome.UNCHANGED


def test_a_repository_of_archives_only_is_clean_and_says_what_was_left_out(parts: Bench, repository: Path) -> None:
    commit(repository, {"a.tgz": os.urandom(500), "a.zip": os.urandom(500)})
    report = sweep(parts, repository)
    assert report.outcome is ScanOutcome.CLEAN
    assert report.coverage is not None
    assert [(entry.reason, entry.count) for entry in report.not_scanned] == [("file_type", 2)]
