"""Git as this product runs it: one hardened environment, closed transports, and errors that say whose fault it was.

Rules (rulings.md 16; reliability.md 2D, 7.8): no configuration but our own reaches any git process, the remote half
of a local fetch included (``upload-pack`` reads ``GIT_CONFIG_GLOBAL`` and drops what the command line says: measured);
no hook, no filter, no file monitor, no credential helper, no prompt; a transport is refused unless this one call
allows it; an address is never taken for an option.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..schema.errors import SourceFault, TargetFault
from ..schema.text import display
from . import gitaddress, githome, gitrefs
from .base import Access, CommandResult, CommandRunner, Credential
from .gitfaults import explain

MINIMUM_VERSION = (2, 39, 4)  # the first of 2.39 in which upload-pack never fetches lazily (CVE-2024-32004, -32465)

_LS_REMOTE_LIMIT = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSettings:
    """What an operator may set for git's network traffic (``network.*``)."""

    https_proxy: str | None = None
    ca_file: Path | None = None
    ssh_key_file: Path | None = None
    network_seconds: float = 60.0  # one ls-remote
    transfer_seconds: float = 1800.0  # one clone or fetch


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCommand:
    """Runs git hardened. ``home`` is a private folder of ours; make it with ``prepare``."""

    home: Path
    runner: CommandRunner
    program: str
    settings: GitSettings

    @classmethod
    def prepare(cls, home: Path, runner: CommandRunner, settings: GitSettings | None = None) -> "GitCommand":
        """Write the configuration, the askpass program and the empty folders below ``home``, and find git.

        Safe with several processes at once: files are replaced whole, and only when they differ.
        Raises ``SourceFault`` (``unreadable``) when there is no git program.
        """
        home = githome.write(home)
        program = shutil.which("git")
        if program is None:
            message = "the program git was not found on PATH; install git and start again"
            raise SourceFault("unreadable", message)
        return cls(home=home, runner=runner, program=program, settings=settings or GitSettings())

    def with_runner(self, runner: CommandRunner) -> "GitCommand":
        """The same git with another way to start programs (one that a lost lease cancels, for example)."""
        return replace(self, runner=runner)

    def environment(
        self, protocols: frozenset[str] = frozenset(), credential: Credential | None = None
    ) -> dict[str, str]:
        """The whole environment of a git process. Nothing of ours is inherited but PATH and the temp folder."""
        inherited = {name: os.environ[name] for name in ("PATH", "TMPDIR", "SYSTEMROOT") if name in os.environ}
        forced = {
            # These stand above the configuration of the repository that git works in.
            "core.hooksPath": str(self.home / "hooks"),
            "core.fsmonitor": "false",
            "core.alternateRefsCommand": "true",
            "protocol.allow": "never",
            "credential.helper": "",
            "gc.auto": "0",
            "maintenance.auto": "false",
        }
        network = protocols - {"file"}
        if self.settings.https_proxy and network:
            forced["http.proxy"] = self.settings.https_proxy
        if self.settings.ca_file and network:
            forced["http.sslCAInfo"] = str(self.settings.ca_file)
        environment = {
            **inherited,
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "xdg"),
            "LC_ALL": "C",
            "LANGUAGE": "C",
            "GIT_CONFIG_GLOBAL": str(self.home / "config"),
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": str(self.home / "askpass"),
            "SSH_ASKPASS": str(self.home / "askpass"),
            "SSH_ASKPASS_REQUIRE": "never",
            "GIT_ALLOW_PROTOCOL": ":".join(sorted(protocols)) or "none",
            "GIT_PROTOCOL_FROM_USER": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_CEILING_DIRECTORIES": str(self.home),
            "GIT_CONFIG_COUNT": str(len(forced)),
        }
        for number, (key, value) in enumerate(forced.items()):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        if "ssh" in protocols:
            environment["GIT_SSH_COMMAND"] = self._ssh()
            environment["GIT_SSH_VARIANT"] = "ssh"
            if "SSH_AUTH_SOCK" in os.environ:
                environment["SSH_AUTH_SOCK"] = os.environ["SSH_AUTH_SOCK"]
        if credential is not None:
            environment["RESWEEP_GIT_USERNAME"] = credential.username
            environment["RESWEEP_GIT_SECRET"] = credential.secret
        return environment

    def run(
        self,
        arguments: Sequence[str],
        *,
        access: Access | None = None,
        git_dir: Path | None = None,
        seconds: float | None = None,
        output_limit_bytes: int = 1 << 20,
        stdin: bytes | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run ``git ARGUMENTS``; ``git_dir`` names a repository of ours, none means outside of any repository.

        The result is returned whatever the exit code is; ``explain`` turns a bad one into an error.
        """
        access = access or Access(protocols=frozenset())
        environment = self.environment(access.protocols, access.credential)
        if git_dir is not None:
            environment["GIT_DIR"] = str(git_dir)
        environment.update(extra or {})
        return self.runner(
            (self.program, *arguments),
            cwd=self.home / "work",
            env=environment,
            seconds=self.settings.network_seconds if seconds is None else seconds,
            output_limit_bytes=output_limit_bytes,
            stdin=stdin,
        )

    def ls_remote(self, address: str, access: Access | None = None) -> gitrefs.Advertised:
        """Ask a repository for its refs: one program, no change anywhere.

        Raises ``SourceFault`` when the network or the server failed, ``TargetFault`` when this repository did.
        """
        access = access or Access(protocols=gitaddress.protocols(address))
        result = self.run(
            ("ls-remote", "--quiet", "--symref", *reach(address)),
            access=access,
            output_limit_bytes=_LS_REMOTE_LIMIT,
        )
        if result.truncated:
            message = f"{display(address)} advertises more than {_LS_REMOTE_LIMIT >> 20} MiB of refs; not scanned"
            raise TargetFault("too_many_refs", message, permanent=True)
        if result.exit_code != 0 or result.timed_out:
            raise explain(result, address, "asking for its refs")
        try:
            return gitrefs.parse_ls_remote(result.stdout)
        except ValueError as error:
            message = f"{display(address)} answered with refs that cannot be read: {error}"
            raise TargetFault("broken", message) from error

    def advertised(self, address: str, access: Access | None = None) -> gitrefs.Advertised:
        """The refs of a repository, read without a program where that is provably the same (plain local ones)."""
        if gitaddress.is_local(address):
            path = gitaddress.local_path(address)
            git_dir = local_git_dir(Path(path))
            if git_dir is not None and os.path.realpath(path) == path:
                plain = gitrefs.read_plain(git_dir)
                if plain is not None:
                    return plain
        return self.ls_remote(address, access)

    def version(self) -> tuple[int, ...]:
        """Git's version as numbers; empty when it cannot be told."""
        result = self.run(("version",))
        match = re.search(rb"git version (\d+)\.(\d+)(?:\.(\d+))?", result.stdout)
        return tuple(int(part) for part in match.groups(b"0")) if match else ()

    def _ssh(self) -> str:
        options = [
            "ssh",
            "-oBatchMode=yes",
            "-oStrictHostKeyChecking=yes",
            "-oForwardAgent=no",
            "-oClearAllForwardings=yes",
            "-oPermitLocalCommand=no",
            "-oConnectTimeout=15",
            "-oServerAliveInterval=15",
            "-oServerAliveCountMax=4",
        ]
        if self.settings.ssh_key_file:
            options += ["-oIdentitiesOnly=yes", "-i", "'" + str(self.settings.ssh_key_file).replace("'", "'\\''") + "'"]
        return " ".join(options)


def reach(address: str) -> tuple[str, ...]:
    """The end of a command line that names a repository to talk to: options, ``--``, the repository.

    A local one is named by its repository folder, and ``upload-pack`` may not look for another one in or beside it.
    Raises ``TargetFault`` (``broken``) when there is no repository folder at a local address.
    """
    if not gitaddress.is_local(address):
        return ("--", address)
    path = gitaddress.local_path(address)
    git_dir = local_git_dir(Path(path))
    if git_dir is None or os.path.realpath(path) != path:
        # Addresses are real paths: one that leads through a link now was changed since it was listed.
        message = f"{display(address)} holds no git repository of its own (.git files and links are never followed)"
        raise TargetFault("broken", message)
    return ("--upload-pack=git-upload-pack --strict", "--", str(git_dir))


def local_git_dir(root: Path) -> Path | None:
    """The repository folder of a local target: ``root/.git`` of a work tree, or ``root`` itself when it is bare.

    None when it is neither, or when ``.git`` is a file or link (those are never followed).
    """
    inner = root / ".git"
    try:
        if inner.is_dir() and not inner.is_symlink():
            return inner
        if (root / "HEAD").is_file() and (root / "objects").is_dir() and (root / "refs").is_dir():
            return root
    except OSError:
        return None
    return None
