"""Real repositories for tests and benchmarks: successive releases of source distributions become commits.

Each package of ``corpus.txt`` turns into bare repositories whose ``main`` holds one commit and one tag a release, with
a maintenance branch off the middle one. Fake tokens are planted (made here from a seed, in nobody's use):
so a scanner has something to find: some in a release that is still there, some only in history or on the side branch.

Offline: ``make_corpus`` reads the source distributions from a folder; ``download`` fills it with pip beforehand.
"""

import hashlib
import re
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

PINS = Path(__file__).with_name("corpus.txt")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_EPOCH = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp())
_DAY = 86_400
_AUTHOR = "A. Releaser <releaser@example.org>"
# Windows (first release, number of releases) into a package's releases: each makes another repository.
_WINDOWS = ((0, 6), (0, 3), (1, 3), (2, 3), (3, 3), (0, 4), (2, 4), (0, 2), (4, 2), (1, 5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One repository to make: its folder name and its source distributions, oldest first."""

    name: str
    archives: tuple[Path, ...]


def pins() -> Mapping[str, tuple[str, ...]]:
    """The pinned packages and their releases, oldest first."""
    lines = (line.split() for line in PINS.read_text("utf-8").splitlines() if line and not line.startswith("#"))
    return {name: tuple(versions) for name, *versions in lines}


def download(folder: Path, *, packages: int | None = None, releases: int = 6) -> list[str]:
    """Fill ``folder`` with the pinned source distributions that are missing; returns what could not be had.

    pip asks the configured index, one release of every package a call (versions of one package exclude each other).
    """
    folder.mkdir(parents=True, exist_ok=True)
    chosen = list(pins().items())[:packages]
    have = {(name, version) for name, version, _ in _archives(folder)}
    missing: list[str] = []
    for index in range(releases):
        wanted = [
            (name, versions[index])
            for name, versions in chosen
            if index < len(versions) and (_plain(name), versions[index]) not in have
        ]
        if wanted and not _pip_download(folder, wanted):
            missing += [
                f"{name}=={version}" for name, version in wanted if not _pip_download(folder, [(name, version)])
            ]
    return missing


def plans(folder: Path, count: int) -> list[Plan]:
    """What ``count`` repositories can be made of the archives in ``folder``; every package once before any twice."""
    order = list(pins().items())
    found = {(name, version): path for name, version, path in _archives(folder)}
    made: list[Plan] = []
    for number, (first, length) in enumerate(_WINDOWS):
        for name, versions in order:
            archives = [found[key] for version in versions if (key := (_plain(name), version)) in found]
            window = tuple(archives[first : first + length])
            if window and (number == 0 or len(archives) >= first + length):
                made.append(Plan(name=f"{_plain(name)}-{number}" if number else _plain(name), archives=window))
    if len(made) < count:
        message = f"{folder} holds source distributions for {len(made)} repositories only; {count} were asked for"
        raise LookupError(message)
    return made[:count]


def make_corpus(root: Path, folder: Path, count: int) -> list[Path]:
    """Make ``count`` bare repositories below ``root`` from the archives in ``folder``; existing ones are kept."""
    made: list[Path] = []
    for number, plan in enumerate(plans(folder, count)):
        path = root / f"{plan.name}.git"
        if not (path / "complete").exists():
            build(path, plan.archives, number=number)
            (path / "complete").touch()
        made.append(path)
    return made


def build(path: Path, archives: Sequence[Path], *, number: int = 0) -> None:
    """Make one bare repository: a commit and a tag an archive on ``main``, and a maintenance branch.

    ``number`` decides what is planted: 0 mod 3 a token that stays, 1 mod 3 one that only history and the side branch
    hold, 2 mod 3 nothing.
    """
    path.mkdir(parents=True, exist_ok=True)
    _git(path, "init", "--quiet", "--bare", "--initial-branch=main")
    stream = bytearray()
    for index, archive in enumerate(archives):
        files = dict(_members(archive))
        last = index == len(archives) - 1
        if number % 3 == 0:
            files["settings/deploy.ini"] = f'token = "{fake_token(f"{path.name}/kept")}"\n'.encode()
        if number % 3 == 1 and not last:
            files["settings/old.ini"] = f'token = "{fake_token(f"{path.name}/history")}"\n'.encode()
        stream += _commit("refs/heads/main", index + 1, f"Release {archive.name}", files, whole=True)
        stream += f"reset refs/tags/r{index + 1}\nfrom refs/heads/main\n\n".encode()
    middle = (len(archives) + 1) // 2
    side = {"MAINTENANCE": f"kept alive from release {middle}\n".encode()}
    if number % 3 == 1:
        side["ci/side.env"] = f"GITHUB_TOKEN={fake_token(f'{path.name}/side')}\n".encode()
    stream += f"reset refs/heads/maintenance\nfrom refs/tags/r{middle}\n\n".encode()
    stream += _commit("refs/heads/maintenance", len(archives) + 1, "Keep the old line alive", side)
    _git(path, "fast-import", "--quiet", stdin=bytes(stream))


def push(
    path: Path, files: Mapping[str, bytes], *, branch: str = "main", message: str = "Change", when: int = _EPOCH
) -> str:
    """Add one commit with ``files`` on ``branch`` (made off ``main`` when new); returns its hex id.

    ``when`` is the commit's time in seconds: an old date must not hide a push.
    """
    ref = f"refs/heads/{branch}"
    known = _git(path, "for-each-ref", "--format=%(refname)", ref).strip() == ref.encode()
    stream = b"" if known else f"reset {ref}\nfrom refs/heads/main^0\n\n".encode()
    start = f"from {ref}^0\n" if known else ""
    stream += _commit(ref, 0, message, files, when=when, start=start)
    _git(path, "fast-import", "--quiet", stdin=stream)
    return _git(path, "rev-parse", ref).decode().strip()


def fake_token(seed: str) -> str:
    """A token of GitHub's shape with a right check sum, derived from ``seed``; nobody was ever given it."""
    body = _base62(int.from_bytes(hashlib.sha256(seed.encode()).digest()), 30)[-30:]
    return "ghp_" + body + _base62(zlib.crc32(body.encode()), 6)


def _commit(
    ref: str,
    day: int,
    message: str,
    files: Mapping[str, bytes],
    *,
    whole: bool = False,
    when: int | None = None,
    start: str = "",
) -> bytes:
    """One commit of a fast-import stream; ``whole`` replaces the tree, else the files are added to it."""
    at = _EPOCH + day * _DAY if when is None else when
    text = message.encode()
    stream = bytearray(f"commit {ref}\ncommitter {_AUTHOR} {at} +0000\ndata {len(text)}\n".encode())
    stream += text + f"\n{start}".encode() + (b"deleteall\n" if whole else b"")
    for name, content in files.items():
        stream += f"M 100644 inline {name}\ndata {len(content)}\n".encode() + content + b"\n"
    return bytes(stream + b"\n")


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Regular files of an archive without its top folder; names that git would refuse are left out."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as bundle:
            for info in bundle.infolist():
                if not info.is_dir() and (name := _inner(info.filename)):
                    yield name, bundle.read(info)
        return
    with tarfile.open(archive) as bundle:
        for member in bundle:
            if member.isfile() and (name := _inner(member.name)):
                content = bundle.extractfile(member)
                if content is not None:
                    yield name, content.read()


def _inner(name: str) -> str:
    """The name below the archive's top folder, or nothing for one that has no place in a tree."""
    parts = PurePosixPath(name).parts[1:]
    odd = any(part in {"..", "."} or part.lower().startswith(".git") for part in parts)
    return "" if odd or re.search(r'["\\\x00-\x1f]', name) else "/".join(parts)


def _archives(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Package, release and path of every source distribution in ``folder``."""
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"(.+)-(\d[^-]*?)(\.tar\.(gz|bz2|xz)|\.tgz|\.zip)", path.name)
        if match:
            yield _plain(match[1]), match[2], path


def _plain(name: str) -> str:
    """A package's normalized name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _pip_download(folder: Path, wanted: Sequence[tuple[str, str]]) -> bool:
    """Whether pip brought all of ``wanted``. No build isolation: the pinned packages build with plain setuptools."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    command += ["--no-build-isolation", "--dest", str(folder), *(f"{name}=={version}" for name, version in wanted)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _git(path: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    """Run git in a repository of ours with nobody's configuration; raises with git's words."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *arguments], cwd=path, input=stdin, capture_output=True, check=False, env=environment)
    if done.returncode != 0:
        message = f"git {arguments[0]} in {path} ended with {done.returncode}: {done.stderr.decode(errors='replace')}"
        raise RuntimeError(message)
    return done.stdout


def _base62(number: int, width: int) -> str:
    """``number`` in base 62, padded to ``width`` digits."""
    digits = ""
    while number:
        number, rest = divmod(number, 62)
        digits = _DIGITS[rest] + digits
    return digits.rjust(width, "0")
