"""The project's own words: ``nox -s lint``, ``types``, ``layers``, ``tests``, ``bench``, ``docs``, ``lock``.

They run in the environment that ``./run_tests.sh`` prepares (``.venv``), not in environments of nox's own: what is
checked is then what runs, and nothing is downloaded twice.
"""

import shutil
import sys
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "layers", "tests"]

ROOT = Path(__file__).parent
TREE = ROOT / "build" / "tree"
BIN = Path(sys.executable).parent
SINGLE_FILES = ["noxfile.py", "conftest.py", "deploy/environment.py"]
SCRIPTS = ["start_runtime.sh", "run_tests.sh", "deploy/prepare.sh", ".ci/run"]
EXPORTS = {"requirements.txt": ["build"], "requirements-dev.txt": ["dev"]}


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and the scripts; ``nox -s lint -- --fix`` repairs what can be repaired."""
    fix = "--fix" in session.posargs
    session.run(sys.executable, "-m", "ruff", "check", *(["--fix"] if fix else []), ".")
    session.run(sys.executable, "-m", "ruff", "format", *([] if fix else ["--check"]), ".")
    session.run(str(BIN / "shellcheck"), "-x", *SCRIPTS)


@nox.session
def types(session: nox.Session) -> None:
    """Check types twice: mypy on a throw-away install (one name a file), pyright on the folders."""
    _install_tree(session)
    session.run(sys.executable, "-m", "mypy", "-p", "resweep")
    session.run(
        sys.executable, "-m", "mypy", "tests", "benchmarks", "noxfile.py", "conftest.py", "deploy/environment.py"
    )
    session.run(sys.executable, "-m", "pyright", "--warnings")


@nox.session
def layers(session: nox.Session) -> None:
    """Check that imports point down only, and that each room speaks only what is its own."""
    _install_tree(session)
    session.run(
        str(BIN / "lint-imports"),
        str(ROOT / "pyproject.toml"),
        "--no-cache",
        env={"PYTHONPATH": str(TREE)},
    )


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests; arguments go to pytest."""
    session.run(sys.executable, "-m", "pytest", *session.posargs)


@nox.session
def campaigns(session: nox.Session) -> None:
    """Kill and poison workers for minutes: figures F1, F4 and F7."""
    session.run(sys.executable, "-m", "pytest", "-s", "-m", "campaign", "tests/faults", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Take every guard out of a copy, one at a time: the named test must fail."""
    session.run(sys.executable, "-m", "pytest", "-m", "seeded", "tests/mutants", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure the figures of docs/performance.md; arguments go to the benchmarks."""
    session.run(sys.executable, "-m", "benchmarks", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a broken link is an error."""
    session.run(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet")


@nox.session
def lock(session: nox.Session) -> None:
    """Write the hashed exports anew; ``-- --upgrade`` takes newer versions. No address of an index lands in them."""
    for name, groups in EXPORTS.items():
        session.run(
            sys.executable,
            "-m",
            "uv",
            "pip",
            "compile",
            "pyproject.toml",
            *(part for group in groups for part in ("--group", group)),
            *(["--constraint", "requirements.txt"] if name != "requirements.txt" else []),
            "--universal",
            "--python-version=3.11",
            "--generate-hashes",
            "--no-emit-index-url",
            "--no-emit-find-links",
            "--no-header",
            "--quiet",
            f"--output-file={name}",
            *session.posargs,
        )


def _install_tree(session: nox.Session) -> None:
    """Install the product below ``build/tree``, from nothing."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    session.run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(TREE),
        str(ROOT),
    )
