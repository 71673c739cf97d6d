"""The scripts: what they set up, what they hand on, and what they say when something is missing.

They are run for real, over a small product of its own, so that nothing has to be fetched: its lists name a wheel that
is made here, its build backend writes the editable install. The scripts are the repository's own.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.require import need

ROOT = Path(__file__).resolve().parents[2]
SH_SCRIPTS = ("start_runtime.sh", "run_tests.sh", "deploy/prepare.sh", ".ci/run")

PRODUCT = """
import json, os, sys, thing
print(json.dumps({
    "argv": sys.argv[1:], "cwd": os.getcwd(), "pid": os.getpid(), "thing": thing.VERSION, "path": sys.path,
    "stdin": sys.stdin.readline(),
}))
sys.exit(int(os.environ.get("EXIT", "0")))
"""

BACKEND = """
import os, zipfile

def get_requires_for_build_editable(config_settings=None):
    return []

def build_editable(directory, config_settings=None, metadata_directory=None):
    name = "resweep-0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("resweep.pth", os.path.join(os.getcwd(), "package"))
        wheel.writestr("resweep-0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: resweep\\nVersion: 0\\n")
        wheel.writestr("resweep-0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("resweep-0.dist-info/RECORD", "")
    return name
"""

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "resweep"
version = "0"
"""


class Checkout:
    """A checkout of a small product with the repository's scripts, in a folder whose name has spaces."""

    def __init__(self, place: Path) -> None:
        self.root = place / "a  checkout; of 'it'"
        self.home = place / "empty home"
        self.wheels = place / "wheels"
        self.home.mkdir(parents=True)
        self.wheels.mkdir()
        for name in (*SH_SCRIPTS, "deploy/environment.py"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        runner = self.root / "package" / "resweep" / "runner"
        runner.mkdir(parents=True)
        (runner / "__init__.py").touch()
        (runner / "__main__.py").write_text(PRODUCT)
        (self.root / "backend.py").write_text(BACKEND)
        (self.root / "pyproject.toml").write_text(PYPROJECT)
        self.require("1")

    def require(self, version: str, *, digest: str | None = None) -> None:
        """Let the lists name the wheel ``thing`` in ``version``; another ``digest`` than its own if given."""
        wheel = self.wheels / f"thing-{version}-py3-none-any.whl"
        info = f"thing-{version}.dist-info"
        with zipfile.ZipFile(wheel, "w") as file:
            for name, text in {
                "thing.py": f"VERSION = {version!r}\n",
                f"{info}/METADATA": f"Metadata-Version: 2.1\nName: thing\nVersion: {version}\n",
                f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
                f"{info}/RECORD": "",
            }.items():
                file.writestr(name, text)
        line = f"thing=={version} --hash=sha256:{digest or hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
        (self.root / "requirements.txt").write_text(line)
        (self.root / "requirements-dev.txt").write_text(line)

    def environment(self, **more: str) -> dict[str, str]:
        """An empty HOME, this interpreter first, no network, and ``more``."""
        names = self.home.parent / "bin"
        if not names.exists():
            names.mkdir()
            base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
            (names / "python3.11").symlink_to(base)
        return {
            "HOME": str(self.home),
            "PATH": f"{names}:{os.defpath}:/usr/bin:/bin",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.wheels.as_uri(),
            "PIP_CONFIG_FILE": os.devnull,
            **more,
        }

    def start(self, *arguments: str, cwd: Path | None = None, **more: str) -> "subprocess.CompletedProcess[str]":
        """Run ``start_runtime.sh`` from ``cwd`` (else the checkout)."""
        return subprocess.run(
            [str(self.root / "start_runtime.sh"), *arguments],
            cwd=cwd or self.root,
            env=self.environment(**more),
            input="hello\n",
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A checkout that was started once; what uses it leaves it as it was."""
    checkout = Checkout(tmp_path_factory.mktemp("started"))
    done = checkout.start()
    assert done.returncode == 0, done.stderr
    assert "the environment is ready" in done.stderr
    yield checkout
    assert (checkout.root / ".venv").is_dir()


def test_arguments_and_folder_and_input_are_handed_on(started: Checkout, tmp_path: Path) -> None:
    folder = tmp_path / "where I am"
    folder.mkdir()
    (folder / "json.py").write_text("raise SystemExit('imported from the folder this was called from')")
    done = started.start("git:.", "a b", "*", "", "--once", "-x", "$HOME", cwd=folder)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["argv"] == ["up", "git:.", "a b", "*", "", "--once", "-x", "$HOME"]
    assert told["cwd"] == str(folder)
    assert told["stdin"] == "hello\n"
    assert str(folder) not in told["path"]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 10, 130])
def test_the_exit_code_is_passed_on(started: Checkout, code: int) -> None:
    assert started.start(EXIT=str(code)).returncode == code


def test_the_script_becomes_the_product_so_that_signals_reach_it(started: Checkout) -> None:
    with subprocess.Popen(
        [str(started.root / "start_runtime.sh")],
        env=started.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        told = json.loads(process.communicate()[0])
    assert told["pid"] == process.pid


def test_a_second_start_installs_nothing_and_is_quick(started: Checkout) -> None:
    began = time.monotonic()
    done = started.start(PIP_FIND_LINKS="/nowhere")
    took = time.monotonic() - began
    assert (done.returncode, done.stderr) == (0, "")
    assert took < 3.0, f"a start that has nothing to set up took {took:.1f} s"


def test_settings_of_another_python_do_not_lead_astray(started: Checkout) -> None:
    done = started.start(PYTHONHOME="/nowhere", VIRTUAL_ENV="/nowhere")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_new_list_is_installed_at_the_next_start(checkout: Checkout) -> None:
    assert json.loads(checkout.start().stdout)["thing"] == "1"
    checkout.require("2")
    done = checkout.start()
    assert json.loads(done.stdout)["thing"] == "2"
    assert "making the virtual environment" not in done.stderr


@pytest.mark.slow
def test_a_wheel_with_another_hash_is_refused_and_nothing_starts(checkout: Checkout) -> None:
    checkout.require("1", digest="0" * 64)
    done = checkout.start()
    assert (done.returncode, done.stdout) == (1, "")
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
    assert "pip ended with 1" in done.stderr
    checkout.require("1")
    assert checkout.start().returncode == 0


@pytest.mark.slow
def test_without_a_package_index_it_says_what_to_do(checkout: Checkout) -> None:
    done = checkout.start(PIP_FIND_LINKS="/nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert "PIP_INDEX_URL" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_two_starts_at_once_prepare_once(checkout: Checkout) -> None:
    results: list[subprocess.CompletedProcess[str]] = []
    threads = [threading.Thread(target=lambda: results.append(checkout.start())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(each.returncode, json.loads(each.stdout)["thing"]) for each in results] == [(0, "1")] * 3
    talk = "".join(each.stderr for each in results)
    assert talk.count("making the virtual environment") == 1
    assert talk.count("the environment is ready") == 1


@pytest.mark.slow
def test_a_start_killed_half_way_is_repaired_by_the_next(checkout: Checkout) -> None:
    with subprocess.Popen(
        [str(checkout.root / "start_runtime.sh")],
        env=checkout.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        pip = checkout.root / ".venv" / "lib"
        while not list(pip.glob("python*/site-packages/pip/__init__.py")):
            assert process.poll() is None
            time.sleep(0.005)
        os.killpg(process.pid, 9)
    done = checkout.start()
    assert (done.returncode, json.loads(done.stdout)["thing"]) == (0, "1"), done.stderr


@pytest.mark.slow
def test_a_moved_checkout_is_set_up_anew(checkout: Checkout) -> None:
    assert checkout.start().returncode == 0
    moved = checkout.root.with_name("elsewhere")
    checkout.root.rename(moved)
    checkout.root = moved
    done = checkout.start()
    assert (done.returncode, json.loads(done.stdout)["thing"]) == (0, "1"), done.stderr
    assert "making the virtual environment" in done.stderr


@pytest.mark.slow
def test_an_environment_that_was_there_before_is_taken_over_as_it_is(checkout: Checkout) -> None:
    place = checkout.root / ".venv"
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([str(base), "-I", "-m", "venv", str(place)], check=True)
    (place / "somebody's notes").write_text("keep")
    done = checkout.start()
    assert (done.returncode, json.loads(done.stdout)["thing"]) == (0, "1"), done.stderr
    assert (place / "somebody's notes").read_text() == "keep"


def test_what_was_not_made_here_is_never_cleared(checkout: Checkout) -> None:
    place = checkout.root / ".venv"
    place.mkdir()
    (place / "somebody's notes").write_text("keep")
    done = checkout.start()
    assert (done.returncode, done.stdout) == (1, "")
    assert "move it away" in done.stderr
    assert (place / "somebody's notes").read_text() == "keep"


def _bare_path(tmp_path: Path, *names: str) -> Path:
    """A folder for PATH that holds these commands of the machine and no more."""
    folder = tmp_path / "few commands"
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    return folder


def test_without_python_it_says_which_is_needed(checkout: Checkout, tmp_path: Path) -> None:
    done = checkout.start(PATH=str(_bare_path(tmp_path, "sh", "dirname", "git")))
    assert (done.returncode, done.stdout) == (1, "")
    assert "no Python 3.11 or newer found" in done.stderr


def test_a_python_without_venv_is_named_with_its_remedy(checkout: Checkout, tmp_path: Path) -> None:
    folder = _bare_path(tmp_path, "sh", "dirname", "git")
    python = folder / "python3.12"
    python.write_text('#!/bin/sh\ncase "$3" in *ensurepip*) exit 1 ;; esac\nexit 0\n')
    python.chmod(0o755)
    done = checkout.start(PATH=str(folder))
    assert (done.returncode, done.stdout) == (1, "")
    assert "apt-get install python3.12-venv" in done.stderr


def test_without_git_it_says_so(checkout: Checkout, tmp_path: Path) -> None:
    folder = _bare_path(tmp_path, "sh", "dirname")
    done = checkout.start(PATH=str(folder), PYTHON=sys.executable)
    assert (done.returncode, done.stdout) == (1, "")
    assert "git is not on PATH" in done.stderr


def test_a_given_python_that_is_too_old_is_refused(checkout: Checkout) -> None:
    done = checkout.start(PYTHON="/bin/false")
    assert (done.returncode, done.stdout) == (1, "")
    assert "PYTHON=/bin/false is not a Python 3.11 or newer" in done.stderr


def test_scripts_are_clean() -> None:
    shellcheck = need("shellcheck")
    done = subprocess.run([shellcheck, "-x", *SH_SCRIPTS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", SH_SCRIPTS)
def test_scripts_can_be_run(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)


class TestPowerShell:
    """There is no PowerShell to run it with on the machines the tests run on; syntax and rules are what can be held."""

    SOURCE = (ROOT / "start_runtime.ps1").read_bytes()
    CODE = re.sub(r"(?m)#.*$", "", SOURCE.decode())

    @staticmethod
    def _is_valid(source: bytes) -> bool:
        import tree_sitter  # noqa: PLC0415 - heavy, and for these tests alone
        import tree_sitter_powershell  # noqa: PLC0415 - as above

        language = tree_sitter.Language(tree_sitter_powershell.language())
        return not tree_sitter.Parser(language).parse(source).root_node.has_error

    def test_its_syntax_is_valid(self) -> None:
        assert self._is_valid(self.SOURCE)

    @pytest.mark.parametrize("broken", [b"if (", b"foreach ($a in", b"$x = @("])
    def test_the_parser_would_tell(self, broken: bytes) -> None:
        assert not self._is_valid(self.SOURCE + broken)

    def test_it_is_thin(self) -> None:
        assert self.SOURCE.count(b"\n") <= 45

    def test_mistakes_end_it(self) -> None:
        statements = [line for line in self.CODE.splitlines() if line.strip()]
        assert statements[0] == "Set-StrictMode -Version 3.0"
        assert statements[1] == "$ErrorActionPreference = 'Stop'"

    def test_the_exit_code_is_passed_on(self) -> None:
        assert self.CODE.rstrip().endswith("exit $LASTEXITCODE")
        for call in re.finditer(r"(?m)^(?:\$\w+ = )?& .*$", self.CODE):
            after = self.CODE[call.end() :].lstrip()
            assert after.startswith(("exit $LASTEXITCODE", "if ($LASTEXITCODE")), call[0]

    def test_every_argument_is_handed_on_untouched(self) -> None:
        assert "-m resweep.runner up @args" in self.CODE
        assert not re.search(r"(?i)\bparam\s*\(|invoke-expression|\biex\b|start-process|cmd /c", self.CODE)

    def test_paths_with_spaces_are_safe(self) -> None:
        assert "Join-Path $PSScriptRoot" in self.CODE
        assert not re.search(r"(?i)set-location|push-location|\bcd\b", self.CODE)

    def test_it_knows_no_secret(self) -> None:
        assert not re.search(r"(?i)token|password|secret|credential", self.CODE)

    def test_it_does_what_the_shell_script_does(self) -> None:
        start = (ROOT / "start_runtime.sh").read_text()
        prepare = (ROOT / "deploy" / "prepare.sh").read_text()
        names = re.search(r"for name in (.*?); do", prepare)
        assert names is not None
        assert re.findall(r"'(python[\d.]*)'", self.CODE) == names[1].split()
        assert "-P -m resweep.runner up" in start
        assert "deploy/environment.py" in self.CODE
