"""The rooms, the package and the lists of what it needs say the same thing."""

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("ledger", "mirror", "queue", "runner", "schema", "sources")
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?==(?P<version>\S+)")


def _product_files() -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT)


def _python_files() -> Iterator[Path]:
    tops = (*ROOMS, "tests", "benchmarks", "deploy")
    yield from (path for top in tops for path in sorted((ROOT / top).rglob("*.py")) if "__pycache__" not in path.parts)


def _pins(name: str) -> dict[str, str]:
    found = (PIN.match(line) for line in (ROOT / name).read_text().splitlines())
    return {canonicalize_name(match["name"]): match["version"] for match in found if match}


def test_the_package_list_is_the_folders() -> None:
    folders = {
        "resweep." + ".".join(path.parent.parts)
        for path in _product_files()
        if path.suffix in {".py", ".sql"} or path.name == "py.typed"
    }
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == folders


def test_everything_in_the_rooms_is_installed(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (*_product_files(), Path("pyproject.toml"), Path("README.md"), Path("LICENSE")):
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, source / path)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--no-build-isolation", "--no-index", "--no-compile", "--target", str(target), str(source)),
        ],
        check=True,
    )
    package = target / "resweep"
    installed = {path.relative_to(package) for path in package.rglob("*") if path.is_file()}
    assert installed == set(_product_files())


def test_the_queue_room_has_no_init() -> None:
    assert not (ROOT / "queue" / "__init__.py").exists()
    assert (ROOT / "queue" / "sql" / "__init__.py").exists()


@pytest.mark.parametrize("where", [ROOT, Path("/")], ids=["the repository root", "elsewhere"])
def test_a_thread_pool_runs_from(where: Path) -> None:
    program = """
import queue, concurrent.futures, logging.handlers, multiprocessing.queues, sys
import resweep.queue.sql, resweep.queue.backoff, resweep.schema.records
assert queue.Queue().maxsize == 0 and 'resweep' not in queue.__name__
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(abs, range(-10, 0))))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=where, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("55", "")


def test_init_files_hold_a_docstring_only() -> None:
    for path in _product_files():
        if path.name == "__init__.py":
            body = ast.parse((ROOT / path).read_text()).body
            assert [type(each) for each in body] == [ast.Expr], f"{path} does more than say what its folder is"
            assert ast.get_docstring(ast.parse((ROOT / path).read_text())), path


def test_each_room_is_typed() -> None:
    assert [room for room in ROOMS if not (ROOT / room / "py.typed").exists()] == []


def test_the_command_is_installed() -> None:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="resweep")
    assert callable(entry.load())
    done = subprocess.run(
        [sys.executable, "-P", "-m", "resweep.runner", "--help"], cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_exports_are_hashed_and_name_no_address(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(--index|--extra|--find|--trusted|-[fie]\s)", text, re.MULTILINE)
    blocks = re.split(r"\n(?=\S)", text)
    assert blocks
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_what_is_declared_is_exported() -> None:
    product = _pins("requirements.txt")
    for text in (*PYPROJECT["project"]["dependencies"], *PYPROJECT["build-system"]["requires"]):
        wanted = Requirement(text)
        assert product[canonicalize_name(wanted.name)] in wanted.specifier, text
        assert wanted.specifier, f"{text} has no bound"


def test_tests_run_on_the_versions_that_are_shipped() -> None:
    assert _pins("requirements.txt").items() <= _pins("requirements-dev.txt").items()


def test_each_dependency_has_its_reason_written_down() -> None:
    reasons = "\n".join(path.read_text() for path in (ROOT / "docs" / "decisions").glob("*.md")).lower()
    groups = PYPROJECT["dependency-groups"]
    texts = [*PYPROJECT["project"]["dependencies"], *(t for g in groups.values() for t in g if isinstance(t, str))]
    names = [Requirement(text).name.lower() for text in texts]
    assert [name for name in names if f"**{name}**" not in reasons] == []


def test_no_file_is_too_long() -> None:
    long = {str(path): count for path in _product_files() if (count := _lines(path)) > 400 and path.suffix == ".py"}
    assert long == {}


def _lines(path: Path) -> int:
    return (ROOT / path).read_bytes().count(b"\n")


def test_each_lint_exception_has_its_reason() -> None:
    settings = (ROOT / "pyproject.toml").read_text()
    lists = settings[settings.index("[tool.ruff.lint]") : settings.index("[tool.ruff.lint.isort]")]
    codes = [line for line in lists.splitlines() if re.match(r'\s+"[A-Z]+[0-9]*",', line)]
    assert codes
    assert [line for line in codes if not re.search(r",\s+# \S", line)] == []
    unexplained = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in _python_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"#\s*noqa", line) and not re.search(r"#\s*noqa: [A-Z0-9, ]+ --? \S", line)
    ]
    assert unexplained == []
