"""The only list of adapters: what kinds there are, and how a source of each is made.

The contract suite runs over this list, so a new adapter is tested by being listed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ..schema.clock import Clock
from ..schema.errors import UsageFault
from . import git, specs
from .base import Capabilities, Credential, Source
from .git import GitSelection, GitSource
from .gitaddress import local_address
from .gitcommand import GitCommand
from .specs import Form, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What one source covers: specs of one kind, and name patterns. Several specs make one source."""

    kind: str
    specs: tuple[Spec, ...]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What adapters are handed by whoever wires them."""

    git: GitCommand
    clock: Clock
    excluded: Sequence[Path] = ()  # folders that are never entered: data_dir, the checkout cache
    credential: Callable[[str], Credential | None] | None = None  # for a remote address
    threads: int = 8
    settings: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))  # the kind's own keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One kind of source."""

    kind: str
    capabilities: Capabilities
    make: Callable[[Selection, Surroundings], Source]


def _make_git(selection: Selection, surroundings: Surroundings) -> Source:
    by_form: dict[Form, list[Spec]] = {}
    for spec in selection.specs:
        by_form.setdefault(spec.form, []).append(spec)
    return GitSource(
        GitSelection(
            paths=tuple(spec.path for spec in by_form.get(Form.FOLDER, ()) if spec.path is not None),
            addresses=tuple(spec.scope for spec in by_form.get(Form.ADDRESS, ())),
            lists=tuple(spec.path for spec in by_form.get(Form.LIST, ()) if spec.path is not None),
            include=selection.include,
            exclude=selection.exclude,
        ),
        git=surroundings.git,
        clock=surroundings.clock,
        excluded=surroundings.excluded,
        credential=surroundings.credential,
        threads=surroundings.threads,
    )


ADAPTERS: Mapping[str, Adapter] = MappingProxyType(
    {"git": Adapter(kind="git", capabilities=git.CAPABILITIES, make=_make_git)}
)


def adapter(kind: str) -> Adapter:
    """The adapter of a kind. Raises ``UsageFault`` for kinds that are understood but not in this version."""
    found = ADAPTERS.get(kind)
    if found is not None:
        return found
    if kind in specs.KINDS:
        message = f"sources of kind {kind} are not in this version yet; what it has: {', '.join(sorted(ADAPTERS))}"
    else:
        message = f"there is no kind {kind!r}; kinds are {', '.join(specs.KINDS)}"
    raise UsageFault(message)


def make_source(selection: Selection, surroundings: Surroundings) -> Source:
    """Make a source. Raises ``UsageFault`` when its kind has no adapter, or a spec is of another kind."""
    found = adapter(selection.kind)
    foreign = [spec.canonical for spec in selection.specs if spec.kind != selection.kind]
    if foreign:
        message = f"{foreign[0]} does not belong to a source of kind {selection.kind}; give it a source of its own"
        raise UsageFault(message)
    return found.make(selection, surroundings)


def configured_specs(
    kind: str, *, scope: str | None, paths: Sequence[str], urls: Sequence[str], cwd: Path
) -> tuple[Spec, ...]:
    """The specs of a configured source (``scope``, ``paths``, ``urls``). Raises ``UsageFault`` when there are none."""
    found = [specs.parse_scope(kind, scope, cwd=cwd)] if scope else []
    if kind != "git" and (paths or urls):
        message = f"paths and urls belong to sources of kind git; a {kind} source has a scope"
        raise UsageFault(message)
    found += [specs.parse_spec(f"git:{local_address(str(cwd / Path(path).expanduser()))}", cwd=cwd) for path in paths]
    found += [specs.parse_spec(f"git:{url}", cwd=cwd) for url in urls]
    if not found:
        message = f"a source of kind {kind} needs {'paths, urls or a scope' if kind == 'git' else 'a scope'}"
        raise UsageFault(message)
    return tuple(found)
