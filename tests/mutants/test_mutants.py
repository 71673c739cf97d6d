"""Every guard is held by a test: taken away one at a time from a copy of the product, the named test fails (F17)."""

from pathlib import Path

import pytest

from tests.mutants.table import MUTANTS
from tests.support.mutants import Mutant, apply, copy_tree, judge, restore

pytestmark = [pytest.mark.seeded, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tree(tmp_path_factory.mktemp("mutants"))


def test_named_tests_pass_as_long_as_nothing_is_taken_away(tree: Path, database_url: str) -> None:
    verdict = judge(tree, sorted({mutant.test for mutant in MUTANTS}), database_url)
    assert verdict.passed, verdict.output


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_f17_missing_guard_is_noticed(tree: Path, database_url: str, mutant: Mutant) -> None:
    apply(tree, mutant)
    try:
        verdict = judge(tree, [mutant.test], database_url)
    finally:
        restore(tree, mutant)
    assert verdict.failed, f"{mutant.test} does not notice {mutant.name}:\n{verdict.output}"
