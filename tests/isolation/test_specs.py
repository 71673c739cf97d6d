"""Interleavings of the real statements, step by step, as PostgreSQL's isolation tester runs them (reliability F18).

A new spec's expected output is written by running this file as a program; read it before it is committed.
"""

import sys
from pathlib import Path

import pytest

from tests.support.isolation import Guard, difference, guards, run

_FOLDER = Path(__file__).parent
_SPECS = sorted(_FOLDER.glob("*.spec"))
_GUARDS = [(spec, guard) for spec in _SPECS for guard in guards(spec)]


def _expected(spec: Path) -> str:
    return (_FOLDER / "expected" / f"{spec.stem}.out").read_text("utf-8")


@pytest.mark.parametrize("spec", _SPECS, ids=lambda spec: spec.stem)
def test_spec_runs_as_expected(spec: Path, database_url: str) -> None:
    seen = run(spec, database_url)
    assert seen == _expected(spec), difference(_expected(spec), seen)


@pytest.mark.parametrize(
    ("spec", "guard"),
    _GUARDS,
    ids=[f"{spec.stem}-{guard.statement}-{number}" for number, (spec, guard) in enumerate(_GUARDS)],
)
def test_f17_spec_notices_a_guard_that_is_missing(spec: Path, guard: Guard, database_url: str) -> None:
    assert run(spec, database_url, without=guard) != _expected(spec)


def test_every_spec_names_a_guard() -> None:
    assert [spec.stem for spec in _SPECS if not guards(spec)] == []


if __name__ == "__main__":
    for name in sys.argv[2:]:
        (_FOLDER / "expected").mkdir(exist_ok=True)
        (_FOLDER / "expected" / f"{name}.out").write_text(run(_FOLDER / f"{name}.spec", sys.argv[1]), "utf-8")
