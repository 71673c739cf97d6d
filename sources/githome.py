"""The private home of every git process of ours: its configuration, its askpass program, its empty folders."""

import os
import tempfile
from pathlib import Path

_CONFIG = """\
# Written by resweep; every git process of ours, and the far half of a local fetch, reads this and nothing else.
[core]
	hooksPath = {hooks}
	fsmonitor = false
	untrackedCache = false
	symlinks = false
	askPass =
	pager = cat
	editor = false
	attributesFile = /dev/null
	excludesFile = /dev/null
	logAllRefUpdates = false
	fsync = committed,-loose-object,-reference
[safe]
	directory = *
	bareRepository = all
[protocol]
	allow = never
[protocol "ext"]
	allow = never
[transfer]
	bundleURI = false
	advertiseBundleURIs = false
	unpackLimit = 1
	credentialsInUrl = die
[fetch]
	recurseSubmodules = false
	writeCommitGraph = false
	showForcedUpdates = false
[uploadpack]
	allowFilter = true
[submodule]
	recurse = false
[credential]
	helper =
[init]
	templateDir = {template}
	defaultBranch = main
[gc]
	auto = 0
	autoDetach = false
[maintenance]
	auto = false
[http]
	lowSpeedLimit = 1
	lowSpeedTime = 60
	followRedirects = initial
	emptyAuth = false
	saveCookies = false
[pack]
	windowMemory = 128m
[advice]
	detachedHead = false
[gpg]
	program = false
"""
_ASKPASS = """\
#!/bin/sh
# Written by resweep: hands git the credential of this one call, or nothing.
case "$1" in
    [Uu]sername*) printf '%s\\n' "${RESWEEP_GIT_USERNAME-}" ;;
    *) printf '%s\\n' "${RESWEEP_GIT_SECRET-}" ;;
esac
"""


def write(home: Path) -> Path:
    """Write what is missing or differs below ``home``; returns its real path. Safe with several processes at once."""
    home = Path(os.path.realpath(home))
    for folder in (home, home / "hooks", home / "template", home / "work"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = _CONFIG.format(hooks=_quoted(home / "hooks"), template=_quoted(home / "template"))
    _write(home / "config", text, 0o600)
    _write(home / "askpass", _ASKPASS, 0o700)
    return home


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _write(path: Path, text: str, mode: int) -> None:
    """Replace a file whole, and only when its content differs, so that readers never see half of one."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except FileNotFoundError:
        pass
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
