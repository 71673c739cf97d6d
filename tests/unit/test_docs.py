"""The pages name what there is: every setting with its default, every command, every exit code."""

import re
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from resweep.runner.cli.main import cli
from resweep.runner.config_model import ScannerSettings, Settings, SourceSettings

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _rows(page: str, heading: str | None = None) -> list[list[str]]:
    """The cells of every table row of a page, or of one of its sections."""
    text = (DOCS / page).read_text()
    if heading is not None:
        text = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("|--")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def _named(row: list[str]) -> set[str]:
    """The keys a row speaks of: the first one whole, those after it relative to the same section."""
    keys = re.findall(r"`([\w.]+)`", row[0])
    section = keys[0].rpartition(".")[0] if keys else ""
    return {key if "." in key or not section else f"{section}.{key}" for key in keys}


def _keys() -> dict[str, object]:
    """Every key of the runtime's tables with its default."""
    keys: dict[str, object] = {}
    for name, field in Settings.model_fields.items():
        if name in {"sources", "scanners", "defaults", "tenants"}:
            continue
        if isinstance(field.default, BaseModel):
            section = type(field.default)
            keys |= {f"{name}.{each}": one.default for each, one in section.model_fields.items()}
        else:
            keys[name] = field.default
    return keys


def test_every_setting_of_the_runtime_is_documented() -> None:
    named = set[str]().union(*(_named(row) for row in _rows("configuration.md", "The runtime")))
    assert set(_keys()) - named == set()
    assert {key for key in named - set(_keys()) if not key.startswith("tenants.")} == set()


def test_documented_defaults_are_the_real_ones() -> None:
    defaults = {key: value for key, value in _keys().items() if isinstance(value, (int, float))}
    checked = 0
    for row in _rows("configuration.md", "The runtime"):
        keys = re.findall(r"`([\w.]+)`", row[0])
        if len(keys) == 1 and keys[0] in defaults and not isinstance(defaults[keys[0]], bool):
            assert float(row[1]) == float(str(defaults[keys[0]])), row[0]
            checked += 1
    assert checked > 8


@pytest.mark.parametrize(("model", "heading"), [(SourceSettings, "Sources"), (ScannerSettings, "Scanners")])
def test_every_setting_of_a_table_is_documented(model: type[BaseModel], heading: str) -> None:
    named = set[str]().union(*(set(re.findall(r"`(\w+)`", row[0])) for row in _rows("configuration.md", heading)))
    assert named == set(model.model_fields)


def test_every_command_is_documented() -> None:
    text = (DOCS / "commands.md").read_text()
    missing = [name for name in cli.list_commands(click.Context(cli)) if not re.search(rf"`(resweep )?{name}\b", text)]
    assert missing == []


def test_every_option_of_up_is_documented() -> None:
    text = (DOCS / "commands.md").read_text()
    up = cli.get_command(click.Context(cli), "up")
    assert up is not None
    options = [name for each in up.params for name in each.opts if name.startswith("--")]
    assert [name for name in options if name not in text] == []


def test_every_page_and_decision_is_in_the_navigation() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text()
    index = (DOCS / "decisions" / "index.md").read_text()
    for page in DOCS.rglob("*.md"):
        assert str(page.relative_to(DOCS)) in navigation, page
        if page.parent.name == "decisions" and page.name != "index.md":
            assert page.name in index, page


def test_the_readme_links_to_what_there_is() -> None:
    readme = DOCS.parent / "README.md"
    links = re.findall(r"\]\(([^)#]+)\)", readme.read_text())
    assert links
    for link in links:
        target = DOCS.parent / link
        assert target.exists(), link
