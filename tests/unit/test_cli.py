"""The frame of the command line: help, mistakes, exit codes, durations, what a terminal gets (product.md)."""

import importlib
import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resweep.runner.cli import main as frame
from resweep.runner.cli.frame import DURATION
from resweep.runner.cli.main import COMMANDS, run, worst
from resweep.runner.cli.paint import colourful, duration, moment

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RESWEEP_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


def test_every_command_that_help_lists_can_be_loaded_and_says_what_help_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, (module, attribute, words) in COMMANDS.items():
        command = getattr(importlib.import_module(f"resweep.runner.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        assert command.name == name
        assert command.help
        assert words.split(".")[0] in " ".join(shown.split())


def test_every_command_has_a_help_and_every_option_of_it_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    def walk(command: click.Command, path: list[str]) -> None:
        assert run([*path, "--help"]) == 0, path
        assert command.help, path
        if isinstance(command, click.Group):
            for name, child in command.commands.items():
                walk(child, [*path, name])

    for name, (module, attribute, _) in COMMANDS.items():
        walk(getattr(importlib.import_module(f"resweep.runner.cli.{module}"), attribute), [name])
    capsys.readouterr()


def test_help_is_there_within_half_a_second() -> None:
    best = 9.0
    for _ in range(5):
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "resweep.runner", "--help"], check=True, capture_output=True)
        best = min(best, time.monotonic() - began)
    assert best < 0.5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["statsu"], "there is no command 'statsu'; did you mean status?"),
        (["xyzzy"], "`resweep --help` lists them"),
        (["x\x1b[2Jy"], "there is no command 'x\\x1b[2Jy'"),
        (["up", "--onec"], "--onec"),
        (["up"], "nothing to watch: name a target"),
        (["up", "gti:."], "did you mean git:…?"),
        (["up", "./here"], "did you mean git:./here?"),
        (["up", "github:org:acme"], "are not in this version yet"),
        (["up", "git:.", "--for", "soon"], "'soon' is no duration; write 75s, 5m, 2h or 1h30m"),
        (["queue", "list", "--limit", "0"], "0 is not in the range"),
        (["queue", "list", "--state", "dnoe"], "dnoe"),
        (["queue", "requeue"], "say which targets"),
        (["queue", "requeue", "--state", "done"], "filters beside the state"),
        (["completion", "tcsh"], "tcsh"),
        (["status", "--config", "nowhere.toml"], "there is no configuration file"),
        (["--config", "nowhere.toml", "status"], "there is no configuration file"),
        (["discover"], "no source is configured"),
        (["sources", "check", "nosuch"], "there is no source 'nosuch'"),
    ],
)
def test_a_mistake_ends_with_2_and_says_what_to_do_on_stderr(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_a_wrong_configuration_ends_with_2_before_anything_starts(
    alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (alone / "resweep.toml").write_text("[workers]\nconcurency = 3\n")
    for arguments in (["up", "git:."], ["status"], ["config", "check"], ["schema", "status"], ["work"]):
        assert run(arguments) == 2, arguments
        assert "did you mean concurrency?" in capsys.readouterr().err
    assert not (alone / "data").exists()


def test_a_fault_of_ours_ends_with_1_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command("status")
    def broken() -> None:
        raise ZeroDivisionError("hostile \x1b[31m text")

    monkeypatch.setattr("resweep.runner.cli.status.status", broken)
    assert run(["status"]) == 1
    said = capsys.readouterr().err
    assert "ZeroDivisionError: hostile \\x1b[31m text. This is a fault of resweep" in said
    assert "Traceback" not in said
    monkeypatch.setenv("RESWEEP_LOG__LEVEL", "debug")
    assert run(["status"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("codes", "code"),
    [([], 0), ([0, 3], 3), ([3, 10], 10), ([10, 1, 3], 1), ([1, 2], 2), ([2, 130, 10], 130), ([0], 0)],
)
def test_the_precedence_of_exit_codes_is_130_2_1_10_3(codes: list[int], code: int) -> None:
    assert worst(codes) == code


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("75s", 75),
        ("5m", 300),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1.5m", 90),
        ("90", 90),
        ("3d", 259_200),
        ("250ms", 0.25),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "x", "5 x", "-5s", "5s5", "99999999999d", "1e9", "nan", "5m x"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    if text == "5s5":
        assert DURATION.convert(text, None, None) == timedelta(seconds=10)
        return
    with pytest.raises(click.BadParameter):
        DURATION.convert(text, None, None)


@given(st.floats(0, 3e8))
def test_a_shown_duration_is_read_back_within_its_precision(seconds: float) -> None:
    read = DURATION.convert(duration(seconds).replace(" ", ""), None, None).total_seconds()
    assert abs(read - seconds) <= max(1.0, seconds * 0.05)


def test_times_are_told_as_people_say_them() -> None:
    assert moment(NOW - timedelta(seconds=75), NOW) == "1m 15s ago"
    assert moment(NOW + timedelta(hours=2), NOW) == "in 2h 0m"
    assert moment(NOW, NOW) == "now"
    assert moment(None, NOW) == ""


class Terminal:
    def isatty(self) -> bool:
        return True


def test_colours_only_on_a_terminal_and_never_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    assert colourful(terminal)  # type: ignore[arg-type]
    monkeypatch.setenv("TERM", "dumb")
    assert not colourful(terminal)  # type: ignore[arg-type]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert colourful(None)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colourful(terminal)  # type: ignore[arg-type]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_scripts_are_printed_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    captured = capsys.readouterr()
    assert "resweep" in captured.out
    assert captured.err.startswith("put it into ")


def test_the_bash_script_is_bash_and_completes_commands() -> None:
    script = subprocess.run(
        [sys.executable, "-m", "resweep.runner", "completion", "bash"], check=True, capture_output=True, text=True
    ).stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "resweep.runner"],
        env={"_RESWEEP_COMPLETE": "bash_complete", "COMP_WORDS": "resweep sta", "COMP_CWORD": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "plain,status" in done.stdout


def test_version_is_told_for_people_and_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert set(document) >= {"resweep", "python", "psycopg", "kingfisher_bin"}
    assert run(["--version"]) == 0
    assert document["resweep"] in capsys.readouterr().out


def test_a_reader_that_goes_away_is_no_error(alone: Path) -> None:
    done = subprocess.run(  # noqa: S602 -- a pipe is what is tested
        f"{sys.executable} -m resweep.runner config show | head -1; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert (
        done.stderr.replace("no configuration file: resweep.toml in this folder, --config or RESWEEP_CONFIG\n", "")
        == ""
    )


def test_config_show_tells_value_origin_and_variable_and_masks(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (alone / "resweep.toml").write_text(
        "[workers]\nconcurrency = 7\n[network]\nhttps_proxy = 'http://u:hunter2@proxy:1'\n"
        "[sources.acme-git]\nkind = 'git'\npaths = ['.']\ntoken_env = 'GIT_TOKEN'\n"
    )
    monkeypatch.setenv("RESWEEP_WORKERS__LEASE_SECONDS", "33")
    monkeypatch.setenv("GIT_TOKEN", "hunter3")
    assert run(["config", "show", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {item["key"]: item for item in document["items"]}
    assert document["total"] == len(document["items"])
    assert rows["workers.concurrency"] == {
        "key": "workers.concurrency",
        "value": 7,
        "origin": f"{alone / 'resweep.toml'}:2",
        "variable": "RESWEEP_WORKERS__CONCURRENCY",
    }
    assert rows["workers.lease_seconds"]["origin"] == "RESWEEP_WORKERS__LEASE_SECONDS"
    assert rows["scan.seconds"]["origin"] == "default"
    assert rows["sources.acme-git.interval_seconds"]["variable"] == "RESWEEP_SOURCES__ACME_GIT__INTERVAL_SECONDS"
    assert rows["network.https_proxy"]["value"] == "http://…@proxy:1"
    assert run(["config", "show", "--origin"]) == 0
    shown = capsys.readouterr().out
    assert "hunter" not in shown + json.dumps(document)


def test_config_check_reads_secrets_and_scanners_too(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "[sources.a]\nkind = 'git'\npaths = ['.']\ntoken_env = 'GIT_TOKEN'\n"
    (alone / "resweep.toml").write_text(text)
    assert run(["config", "check"]) == 2
    assert "the variable GIT_TOKEN is not set" in capsys.readouterr().err
    monkeypatch.setenv("GIT_TOKEN", "x")
    assert run(["config", "check"]) == 0
    assert "1 source" in capsys.readouterr().out
    (alone / "resweep.toml").write_text(text + "[scanners.mine]\ncommand = ['x', '{wrong}']\n")
    assert run(["config", "check"]) == 2
    assert "scanners.mine.command holds {wrong}" in capsys.readouterr().err


def test_the_frame_itself_loads_neither_the_database_nor_the_configuration() -> None:
    code = (
        "import sys, resweep.runner.cli.main as m; m.run(['--help']); "
        "heavy = {'psycopg', 'pydantic', 'rich', 'fastapi', 'structlog'} & set(sys.modules); sys.exit(bool(heavy))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
    assert frame.GOOD == 0
