"""One entry of the checkout cache: made by clone, moved by fetch, pruned after a rewrite, repaired after a crash.

The entry's lock is held by the caller. ``dirty`` exists from before the first change until the state file is written:
who finds it knows that a predecessor was killed in between, and prunes before anything is scanned.
"""

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...schema.errors import TargetFault
from ...schema.records import NotScanned
from ...schema.text import display
from ...sources import gitrefs
from ...sources.base import Access
from ...sources.gitcommand import GitCommand, reach
from ...sources.gitfaults import explain
from ...sources.gitrefs import Advertised
from .checkout_range import peel
from .checkout_space import STATE_FILE, folder_bytes

_STATE_VERSION = 1
_REFSPECS: tuple[str, ...] = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_MANY_PACKS = 40
_MANY_REFS = 500
_REFS_LIMIT = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLimits:
    """What may be left out of a copy."""

    max_blob_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryState:
    """What the copy holds, as written to the state file."""

    refs: Mapping[str, str]
    default_branch: str | None
    detached: str | None
    head: str | None
    peeled: Mapping[str, str]  # peeled object id to its type
    packs: Mapping[str, int]  # file name below objects/pack to its size
    size_bytes: int
    shallow: bool = False
    filtered_blobs: int = 0
    address: str = ""
    kind: str = ""
    version: int = field(default=_STATE_VERSION)

    @property
    def digest(self) -> bytes:
        """The change signal of what the copy holds (32 bytes)."""
        return gitrefs.digest(self.refs, default_branch=self.default_branch, detached=self.detached)

    @property
    def tips(self) -> tuple[str, ...]:
        """Peeled object ids, sorted."""
        return tuple(sorted(self.peeled))

    @property
    def not_scanned(self) -> tuple[NotScanned, ...]:
        """What the copy lacks."""
        missing: list[NotScanned] = []
        if self.shallow:
            missing.append(NotScanned(reason="shallow_history", count=1))
        if self.filtered_blobs:
            missing.append(NotScanned(reason="blob_too_large", count=self.filtered_blobs))
        return tuple(missing)

    def covers(self, advertised: Advertised) -> bool:
        """Whether the copy holds exactly what is advertised."""
        return (
            self.refs == advertised.refs
            and self.default_branch == advertised.default_branch
            and self.detached == advertised.detached
        )


class Entry:
    """A folder with ``repository.git``, the state file, and ``dirty`` while it is being changed."""

    def __init__(self, folder: Path, *, git: GitCommand, limits: EntryLimits) -> None:
        """``folder`` need not exist yet."""
        self._folder = folder
        self._git = git
        self._limits = limits
        self.repository = folder / "repository.git"

    def bring_up_to_date(
        self, advertised: Advertised, *, address: str, kind: str, access: Access
    ) -> tuple[EntryState, bool, bool]:
        """Make the copy hold what is advertised; returns its state, whether history was rewritten, whether it changed.

        Between asking and fetching the repository may move on: the state says what the copy really holds.
        """
        state = self._read_state()
        dirty = self._dirty.exists()
        if state is not None and not dirty and state.covers(advertised) and self._sound(state):
            return state, False, False
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._dirty.touch()
        self._clear_leftovers()
        rewritten, peeled = False, None
        if state is None or not self.repository.is_dir() or not self._intact(state):
            self._clone(advertised, address, access)
        else:
            try:
                self._fetch(advertised, address, access)
                rewritten, peeled = self._settle_history(state, was_dirty=dirty)
            except TargetFault as fault:
                if fault.permanent or fault.code != "broken":
                    raise
                # What the copy's own damage did cannot be told from what the far side did: once, from the start.
                self._clone(advertised, address, access)
                rewritten = True
        state = self._survey(address, kind, peeled)
        self._require_all(advertised, state, address, access)
        self._write_state(state)
        self._dirty.unlink(missing_ok=True)
        return state, rewritten, True

    def touch(self) -> None:
        """Mark the entry as used now, for the order in which entries leave."""
        try:
            os.utime(self._folder / STATE_FILE)
        except FileNotFoundError:
            return

    @property
    def _dirty(self) -> Path:
        return self._folder / "dirty"

    def _clone(self, advertised: Advertised, address: str, access: Access) -> None:
        fresh = self._folder / f"new-{secrets.token_hex(6)}.git"
        arguments = ["clone", "--quiet", "--bare", "--no-local", "--no-recurse-submodules", "--no-reject-shallow"]
        if self._limits.max_blob_bytes is not None:
            arguments.append(f"--filter=blob:limit={self._limits.max_blob_bytes}")
        result = self._git.run(
            [*arguments, *reach(address), str(fresh)],
            access=access,
            seconds=self._git.settings.transfer_seconds,
        )
        if result.exit_code != 0 or result.timed_out:
            shutil.rmtree(fresh, ignore_errors=True)
            raise explain(result, address, "cloning")
        if self.repository.exists():
            shutil.rmtree(self.repository)
        fresh.rename(self.repository)
        self._write_head(advertised)

    def _fetch(self, advertised: Advertised, address: str, access: Access) -> None:
        # Bases of earlier ranges go: they would keep what a rewrite removes.
        shutil.rmtree(self.repository / "refs" / "resweep", ignore_errors=True)
        refspecs = list(_REFSPECS)
        if advertised.detached is not None:
            refspecs.append("HEAD")  # to no ref: our own HEAD keeps it
        # A filtered copy is fetched by the remote's name, or git takes what was left out for lost.
        filtered = self._limits.max_blob_bytes is not None
        *options, where = reach(address)
        if filtered:
            options.insert(0, f"--filter=blob:limit={self._limits.max_blob_bytes}")
            where = "origin"
        result = self._git.run(
            [
                "fetch",
                "--quiet",
                "--prune",
                "--force",
                "--no-tags",
                "--no-write-fetch-head",
                "--no-recurse-submodules",
                "--no-auto-maintenance",
                "--update-shallow",
                "--refmap=",
                *options,
                where,
                *refspecs,
            ],
            access=access,
            git_dir=self.repository,
            seconds=self._git.settings.transfer_seconds,
        )
        if result.exit_code != 0 or result.timed_out:
            raise explain(result, address, "fetching")
        self._write_head(advertised)

    def _require_all(self, advertised: Advertised, state: EntryState, address: str, access: Access) -> None:
        """Nothing that is advertised may be missing from the copy without a word: git leaves out names it refuses."""
        missing = advertised.refs.keys() - state.refs.keys()
        if not missing:
            return
        missing &= self._git.advertised(address, access).refs.keys()  # the others were deleted meanwhile
        if missing:
            some = ", ".join(display(name[:100]) for name in sorted(missing)[:3])
            message = f"{len(missing)} refs of {display(address)} cannot be copied ({some}); their names are malformed"
            raise TargetFault("broken", message)

    def _write_head(self, advertised: Advertised) -> None:
        """Point HEAD where the far side's points; to a branch that does not exist when it points to none."""
        if advertised.default_branch is not None:
            content = os.fsencode(f"ref: {advertised.default_branch}\n")
        elif advertised.detached is not None:
            content = f"{advertised.detached}\n".encode("ascii")
        else:
            branch = "refs/heads/none"
            while branch in advertised.refs:
                branch += "-"
            content = os.fsencode(f"ref: {branch}\n")
        head = self.repository / "HEAD"
        if head.read_bytes() != content:
            _replace(head, content)

    def _settle_history(self, before: EntryState, *, was_dirty: bool) -> tuple[bool, dict[str, str]]:
        """After a fetch: whether something that was covered is unreachable now; then it is gone when this returns.

        Also returns what the refs name now, peeled.
        """
        refs = self._local_refs()
        now = peel(self._git, self.repository, _object_ids(refs))
        gone = {oid: kind for oid, kind in before.peeled.items() if oid not in now}
        rewritten = any(kind != "commit" for kind in gone.values())
        if gone and not rewritten:
            # rev-list prints a commit exactly when one that was reachable from an old tip no longer is.
            lines = [*gone, *(f"^{oid}" for oid, kind in now.items() if kind == "commit")]
            result = self._git.run(
                ["rev-list", "--max-count=1", "--stdin"],
                git_dir=self.repository,
                seconds=self._git.settings.transfer_seconds,
                stdin="".join(f"{line}\n" for line in lines).encode("ascii"),
            )
            rewritten = result.exit_code != 0 or bool(result.stdout.strip())
        if rewritten or was_dirty:
            self._prune()
        elif len(self._packs()) > _MANY_PACKS:
            self._maintain("repack", "-q", "-d", "-l", "--geometric=2")
        if rewritten or _count_loose_refs(self.repository) > _MANY_REFS:
            self._maintain("pack-refs", "--all", "--prune")
        return rewritten, now

    def _prune(self) -> None:
        """Remove every object that no ref reaches: scanners read objects, not history."""
        for name in ("FETCH_HEAD", "ORIG_HEAD"):
            (self.repository / name).unlink(missing_ok=True)
        shutil.rmtree(self.repository / "logs", ignore_errors=True)
        self._maintain("repack", "-q", "-a", "-d", "-l")
        self._maintain("prune", "--expire=now")

    def _maintain(self, *arguments: str) -> None:
        result = self._git.run(arguments, git_dir=self.repository, seconds=self._git.settings.transfer_seconds)
        if result.exit_code != 0 or result.timed_out:
            raise explain(result, str(self.repository), f"running git {arguments[0]}")

    def _survey(self, address: str, kind: str, peeled: dict[str, str] | None) -> EntryState:
        refs = self._local_refs()
        if peeled is None:
            peeled = peel(self._git, self.repository, _object_ids(refs))
        if any(found == "missing" for found in peeled.values()):
            raise TargetFault("broken", f"the copy of {address} lacks objects that its refs name")
        head = refs.refs.get(refs.default_branch) if refs.default_branch is not None else refs.detached
        return EntryState(
            refs=dict(refs.refs),
            default_branch=refs.default_branch,
            detached=refs.detached,
            head=head,
            peeled=peeled,
            packs=self._packs(),
            size_bytes=folder_bytes(self._folder),
            shallow=(self.repository / "shallow").exists(),
            filtered_blobs=self._count_filtered(peeled),
            address=address,
            kind=kind,
        )

    def _count_filtered(self, peeled: Mapping[str, str]) -> int:
        """How many blobs the size filter left out of the copy."""
        if self._limits.max_blob_bytes is None or not peeled:
            return 0
        result = self._git.run(
            ["rev-list", "--objects", "--no-object-names", "--missing=print", "--filter=object:type=blob", "--stdin"],
            git_dir=self.repository,
            seconds=self._git.settings.transfer_seconds,
            output_limit_bytes=_REFS_LIMIT,
            stdin="".join(f"{oid}\n" for oid in peeled).encode("ascii"),
        )
        return sum(line.startswith(b"?") for line in result.stdout.splitlines())

    def _local_refs(self) -> Advertised:
        plain = gitrefs.read_plain(self.repository)
        if plain is not None:
            return plain
        return self._git.ls_remote(str(self.repository))

    def _packs(self) -> dict[str, int]:
        packs: dict[str, int] = {}
        with os.scandir(self.repository / "objects" / "pack") as listing:
            for entry in listing:
                if entry.name.endswith((".pack", ".idx")):
                    packs[entry.name] = entry.stat(follow_symlinks=False).st_size
        return packs

    def _intact(self, state: EntryState) -> bool:
        """Whether the packs that the state knows are still there, whole. New ones may have come before a crash."""
        try:
            packs = self._packs()
        except OSError:
            return False
        return all(packs.get(name) == size for name, size in state.packs.items())

    def _sound(self, state: EntryState) -> bool:
        """Whether the copy is just as the state says: same packs, same refs."""
        if not self._intact(state):
            return False
        return state.covers(self._local_refs())

    def _clear_leftovers(self) -> None:
        """Remove what a killed git left: half clones, lock files, temporary packs. Ours alone: the lock is held."""
        with os.scandir(self._folder) as listing:
            stale = [entry.path for entry in listing if entry.name.startswith("new-")]
        for path in stale:
            shutil.rmtree(path, ignore_errors=True)
        if not self.repository.is_dir():
            return
        for folder, _, files in os.walk(self.repository):
            for name in files:
                if name.endswith(".lock") or name.startswith(("tmp_", ".tmp-")):
                    Path(folder, name).unlink(missing_ok=True)
        for quarantine in (self.repository / "objects").glob("tmp_objdir-*"):
            shutil.rmtree(quarantine, ignore_errors=True)

    def _read_state(self) -> EntryState | None:
        try:
            raw = json.loads((self._folder / STATE_FILE).read_bytes())
            return EntryState(**raw) if raw.get("version") == _STATE_VERSION else None
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def _write_state(self, state: EntryState) -> None:
        _replace(self._folder / STATE_FILE, json.dumps(asdict(state), ensure_ascii=True).encode("ascii"))


def _object_ids(refs: Advertised) -> set[str]:
    ids = set(refs.refs.values())
    if refs.detached is not None:
        ids.add(refs.detached)
    return ids


def _count_loose_refs(repository: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(repository / "refs"))


def _replace(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    fresh.write_bytes(content)
    fresh.replace(path)
