"""Hostile repositories, one function each (reliability.md 2 D): whoever scans them must run nothing of theirs.

Every case gets an empty folder and ``trap``: a shell command that would create a file if anything ever ran it.
"""

import gzip
import hashlib
import io
import os
import stat
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.support.processes import commit, git, new_repository, token_line

Case = Callable[[Path, str], None]
CASES: dict[str, Case] = {}


def case(make: Case) -> Case:
    """Register a case under its function's name."""
    CASES[make.__name__] = make
    return make


def _start(folder: Path) -> Path:
    new_repository(folder)
    commit(folder, {"readme": "hello\n", "a.env": token_line(1)})
    return folder


def _setting(folder: Path, text: str) -> None:
    with open(folder / ".git" / "config", "a", encoding="utf-8") as config:
        config.write(text)


def _raw_tree(folder: Path, *entries: tuple[str, bytes, str]) -> str:
    """A tree object as git would refuse to write it: (mode, name, id)."""
    body = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
    return git(folder, "hash-object", "-t", "tree", "--literally", "-w", "--stdin", stdin=body)


def _head_on(folder: Path, tree: str) -> None:
    made = git(folder, "commit-tree", "-m", "crafted", "-p", "HEAD", tree)
    git(folder, "update-ref", "refs/heads/main", made)


@case
def config_fsmonitor(folder: Path, trap: str) -> None:
    _setting(_start(folder), f'[core]\n\tfsmonitor = "{trap}; false"\n')


@case
def config_hooks(folder: Path, trap: str) -> None:
    _start(folder)
    hooks = folder / ".git" / "evil"
    hooks.mkdir()
    for name in (
        "post-checkout",
        "reference-transaction",
        "pre-auto-gc",
        "post-index-change",
        "proc-receive",
        "update",
    ):
        for place in (hooks, folder / ".git" / "hooks"):
            place.mkdir(exist_ok=True)
            (place / name).write_text(f"#!/bin/sh\n{trap}\n")
            (place / name).chmod(0o755)
    _setting(folder, f"[core]\n\thooksPath = {hooks}\n")


@case
def config_filters(folder: Path, trap: str) -> None:
    _start(folder)
    commit(folder, {".gitattributes": "* filter=evil diff=evil merge=evil\n", "x": "x\n"})
    _setting(
        folder,
        f'[filter "evil"]\n\tclean = "{trap}; cat"\n\tsmudge = "{trap}; cat"\n\tprocess = "{trap}"\n\trequired\n',
    )
    _setting(
        folder,
        f'[diff "evil"]\n\ttextconv = "{trap}; cat"\n\tcommand = "{trap}"\n[merge "evil"]\n\tdriver = "{trap}"\n',
    )


@case
def config_upload_pack_hook(folder: Path, trap: str) -> None:
    _setting(_start(folder), f'[uploadpack]\n\tpackObjectsHook = "{trap}; false"\n')


@case
def config_programs(folder: Path, trap: str) -> None:
    _start(folder)
    for key in ("sshCommand", "askPass", "pager", "editor", "alternateRefsCommand", "gitProxy"):
        _setting(folder, f'[core]\n\t{key} = "{trap}"\n')
    _setting(
        folder, f'[gpg]\n\tprogram = "{trap}"\n[credential]\n\thelper = "!{trap}"\n[alias]\n\tupload-pack = "!{trap}"\n'
    )
    _setting(
        folder,
        f'[remote "origin"]\n\turl = "ext::sh -c {trap}"\n\tuploadpack = "{trap}"\n\tpromisor\n'
        "[protocol]\n\tallow = always\n",
    )


@case
def config_include(folder: Path, trap: str) -> None:
    _start(folder)
    (folder / "evil.config").write_text(f'[core]\n\tfsmonitor = "{trap}"\n\tpager = "{trap}"\n')
    _setting(folder, f"[include]\n\tpath = {folder}/evil.config\n")


@case
def config_malformed(folder: Path, trap: str) -> None:
    _setting(_start(folder), f'[core\n\tfsmonitor = "{trap}\n\x00\x1b[2J')


@case
def alternates_outside(folder: Path, trap: str) -> None:
    _start(folder)
    (folder / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "objects" / "info" / "alternates").write_text("/etc\n/proc/self\n/nonexistent\n")


@case
def submodule_that_runs(folder: Path, trap: str) -> None:
    _start(folder)
    modules = f'[submodule "x"]\n\tpath = x\n\turl = "ext::sh -c {trap}"\n\tupdate = "!{trap}"\n'
    modules += '[submodule "../../evil"]\n\tpath = "-u"\n\turl = -u./payload\n'
    commit(folder, {".gitmodules": modules})
    git(folder, "update-index", "--add", "--cacheinfo", "160000," + "1" * 40 + ",x")
    git(folder, "commit", "-q", "-m", "submodule")


@case
def links_that_leave(folder: Path, trap: str) -> None:
    _start(folder)
    (folder / "passwd").symlink_to("/etc/passwd")
    (folder / "up").symlink_to("../../../../../../..")
    (folder / "self").symlink_to("self")
    (folder / "fd").symlink_to("/proc/self/environ")
    commit(folder, {})


@case
def link_then_file_below_it(folder: Path, trap: str) -> None:
    _start(folder)
    link = git(folder, "hash-object", "-w", "--stdin", stdin=str(folder.parent).encode())
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=b"owned\n")
    inner = _raw_tree(folder, ("100644", b"owned-through-link", blob))
    _head_on(folder, _raw_tree(folder, ("120000", b"a", link), ("40000", b"a", inner)))


@case
def names_with_escapes(folder: Path, trap: str) -> None:
    _start(folder)
    commit(folder, {"\x1b[2J\x1b]0;owned\x07.env": token_line(2), "bell\x07": token_line(3), "\x9b31m": token_line(4)})


@case
def names_with_line_breaks(folder: Path, trap: str) -> None:
    _start(folder)
    commit(folder, {"\r::stop-commands::x\n::error::owned": token_line(2), "a\nERROR kingfisher: x": token_line(3)})


@case
def names_not_utf8(folder: Path, trap: str) -> None:
    _start(folder)
    commit(folder, {os.fsdecode(b"\xff\xfe\x80.env"): token_line(2), os.fsdecode(b"dir\xe9/f"): token_line(3)})


@case
def names_with_bidi_and_nothing(folder: Path, trap: str) -> None:
    _start(folder)
    commit(folder, {"\u202egnp.exe": token_line(2), "zero\u200bwidth": token_line(3), "\ufeff.env": token_line(4)})


@case
def names_that_are_options_and_markup(folder: Path, trap: str) -> None:
    _start(folder)
    commit(
        folder,
        {
            "--output=owned": token_line(2),
            "-rf": token_line(3),
            "$(" + trap.replace("/", "\u2215") + ")": token_line(4),
            "<img src=x onerror=alert(1)>": token_line(5),
            "{report}": token_line(6),
        },
    )


@case
def names_as_long_as_may_be(folder: Path, trap: str) -> None:
    _start(folder)
    commit(folder, {"n" * 255: token_line(2)})
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=token_line(3).encode())
    tree = _raw_tree(folder, ("100644", b"leaf", blob))
    for _ in range(30):
        tree = _raw_tree(folder, ("40000", b"d" * 250, tree))
    _head_on(folder, tree)


@case
def deep_tree(folder: Path, trap: str) -> None:
    _start(folder)
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=token_line(2).encode())
    tree = git(folder, "mktree", stdin=f"100644 blob {blob}\tleaf\n".encode())
    # Written by one git process: 1,500 of them would take longer than the scan.
    trees = [tree]
    for _ in range(1500):
        body = b"40000 d\0" + bytes.fromhex(trees[-1])
        content = b"tree %d\0" % len(body) + body
        name = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        path = folder / ".git" / "objects" / name[:2] / name[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(content))
        trees.append(name)
    _head_on(folder, trees[-1])


@case
def tree_of_ten_billion_files(folder: Path, trap: str) -> None:
    _start(folder)
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=token_line(2).encode())
    tree = _raw_tree(folder, *(("100644", b"f%d" % n, blob) for n in range(10)))
    for _ in range(9):
        tree = _raw_tree(folder, *(("40000", b"d%d" % n, tree) for n in range(10)))
    _head_on(folder, tree)


@case
def wide_tree(folder: Path, trap: str) -> None:
    _start(folder)
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=token_line(2).encode())
    _head_on(
        folder, git(folder, "mktree", stdin="".join(f"100644 blob {blob}\tf{n:05}\n" for n in range(20_000)).encode())
    )


@case
def tree_with_dot_git(folder: Path, trap: str) -> None:
    _start(folder)
    evil = git(folder, "hash-object", "-w", "--stdin", stdin=f'[core]\n\tfsmonitor = "{trap}"\n'.encode())
    inner = _raw_tree(folder, ("100644", b"HEAD", evil), ("100644", b"config", evil))
    names = (b".GIT", b".Git ", b".git", b".git.", b"GIT~1", b"git~1", ".g\u200cit".encode())
    _head_on(folder, _raw_tree(folder, *(("40000", name, inner) for name in names)))


@case
def tree_with_dots_and_slashes(folder: Path, trap: str) -> None:
    _start(folder)
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=b"owned\n")
    inner = _raw_tree(folder, ("100644", b"owned", blob))
    names = (b"..", b".", b"../../owned", b"/tmp/owned", b"a\\..\\..\\owned", b"")
    _head_on(folder, _raw_tree(folder, *(("40000", name, inner) for name in names), ("100644", b"../owned", blob)))


@case
def tree_with_one_name_twice(folder: Path, trap: str) -> None:
    _start(folder)
    first = git(folder, "hash-object", "-w", "--stdin", stdin=token_line(2).encode())
    second = git(folder, "hash-object", "-w", "--stdin", stdin=token_line(3).encode())
    _head_on(folder, _raw_tree(folder, ("100644", b"f", first), ("100644", b"f", second), ("100644", b"F", second)))


@case
def tree_with_odd_modes(folder: Path, trap: str) -> None:
    _start(folder)
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=token_line(2).encode())
    _head_on(folder, _raw_tree(folder, ("104755", b"suid", blob), ("10644", b"pipe", blob), ("60644", b"device", blob)))


@case
def tree_that_is_a_blob(folder: Path, trap: str) -> None:
    _start(folder)
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=b"no tree\n")
    _head_on(folder, _raw_tree(folder, ("40000", b"d", blob), ("100644", b"f", git(folder, "rev-parse", "HEAD"))))


@case
def commit_with_escapes(folder: Path, trap: str) -> None:
    _start(folder)
    tree = git(folder, "rev-parse", "HEAD^{tree}")
    who = "\x1b[2J <a\r::error::x@b> 99999999999999999999 +9999"
    body = f"tree {tree}\nauthor {who}\ncommitter {who}\nencoding \x1b\n\n\x1b]0;owned\x07\x00 message\n"
    made = git(folder, "hash-object", "-t", "commit", "--literally", "-w", "--stdin", stdin=body.encode())
    git(folder, "update-ref", "refs/heads/main", made)


@case
def refs_with_hostile_names(folder: Path, trap: str) -> None:
    _start(folder)
    for name in ("--upload-pack=owned", "$(owned)", ";owned", "`owned`", "<b>", "\u202eevil", "a'b\"c", "-x"):
        git(folder, "update-ref", f"refs/heads/{name}", "HEAD")


@case
def many_refs(folder: Path, trap: str) -> None:
    _start(folder)
    head = git(folder, "rev-parse", "HEAD")
    git(
        folder, "update-ref", "--stdin", stdin="".join(f"create refs/heads/b{n} {head}\n" for n in range(5000)).encode()
    )


@case
def head_that_leaves(folder: Path, trap: str) -> None:
    _start(folder)
    (folder / ".git" / "HEAD").write_text("ref: ../../../../../../etc/passwd\n")


@case
def ref_that_is_a_link(folder: Path, trap: str) -> None:
    _start(folder)
    (folder / ".git" / "refs" / "heads" / "evil").symlink_to("/etc/passwd")
    (folder / ".git" / "refs" / "heads" / "loop").symlink_to("loop")


@case
def replace_refs_and_grafts(folder: Path, trap: str) -> None:
    _start(folder)
    first = git(folder, "rev-parse", "HEAD")
    other = commit(folder, {"b.env": token_line(2)})
    git(folder, "update-ref", f"refs/replace/{other}", first)
    (folder / ".git" / "info" / "grafts").write_text(f"{other}\n")
    (folder / ".git" / "shallow").write_text(f"{first}\n")


@case
def corrupt_objects(folder: Path, trap: str) -> None:
    _start(folder)
    for path in (folder / ".git" / "objects").rglob("??????????????????????????????????????"):
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        path.write_bytes(path.read_bytes()[:-5] + b"XXXXX")


@case
def missing_objects(folder: Path, trap: str) -> None:
    _start(folder)
    blob = git(folder, "rev-parse", "HEAD:a.env")
    (folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()


@case
def zip_bomb(folder: Path, trap: str) -> None:
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("zeros", "w", force_zip64=True) as zeros,
    ):
        for _ in range(600):
            zeros.write(b"\0" * (1 << 20))
    commit(_start(folder), {"bomb.zip": packed.getvalue(), "bomb.jar": packed.getvalue()})


@case
def nested_gzip_bomb(folder: Path, trap: str) -> None:
    content = b"\0" * (200 << 20)
    for _ in range(2):
        content = gzip.compress(content, 6)
    commit(_start(folder), {"bomb.tar.gz": content, "bomb.gz": content})


@case
def yaml_and_json_bombs(folder: Path, trap: str) -> None:
    laughs = 'a0: &a0 ["lol","lol"]\n' + "".join(
        f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )
    deep = "[" * 100_000 + "]" * 100_000
    tagged = '!!python/object/apply:os.system ["' + trap + '"]\n'
    commit(_start(folder), {"bomb.yaml": laughs, "deep.json": deep, "deep.yaml": deep[:5000], "tag.yml": tagged})


@case
def one_huge_line(folder: Path, trap: str) -> None:
    commit(_start(folder), {"line": b"A" * (20 << 20), "json": b'{"k": "' + b"x9" * (5 << 20) + b'"}'})


@case
def lines_that_make_patterns_slow(folder: Path, trap: str) -> None:
    text = "password = '" + "a=" * 100_000 + "'\n" + "://" * 100_000 + "@\n" + ("secret: " * 20_000) + "\n"
    commit(_start(folder), {"slow.py": text, "slow.yaml": text, "slow.env": text})


@case
def binary_and_nul(folder: Path, trap: str) -> None:
    chunk = os.urandom(4 << 20)
    secret = token_line(2).encode()
    commit(
        _start(folder),
        {"random": chunk, "nul": b"\0" + secret + b"\0\0", "mixed": b"\xff\xfe" + secret + b"\xed\xa0\x80"},
    )


@case
def utf16_and_surrogates(folder: Path, trap: str) -> None:
    commit(
        _start(folder),
        {
            "utf16": token_line(2).encode("utf-16"),
            "surrogate.json": '{"a": "\\ud800", "token": "' + token_line(3).strip().replace('"', "") + '"}',
            "after\ud7ff": token_line(4) + "\udcff".encode("utf-8", "surrogatepass").decode("latin-1"),
        },
    )


@case
def a_flood_of_findings(folder: Path, trap: str) -> None:
    commit(_start(folder), {"flood.env": "".join(token_line(n) for n in range(10_000))})


@case
def a_flood_of_places(folder: Path, trap: str) -> None:
    commit(_start(folder), {f"d/{n}.env": f"{n}\n{token_line(2)}" for n in range(2_000)})


@case
def configuration_of_scanners(folder: Path, trap: str) -> None:
    off = "rules: []\nexclude:\n  - '*'\nskip-word: [ghp]\n"
    commit(
        _start(folder),
        {
            "kingfisher.yaml": off,
            ".kingfisher.yaml": off,
            ".gitleaks.toml": '[allowlist]\npaths = [".*"]\n',
            ".secrets.baseline": '{"version": "1.5.0", "plugins_used": [], "filters_used": [], "results": {}}',
            ".pre-commit-config.yaml": "repos: []\n",
        },
    )


@case
def modules_that_shadow_ours(folder: Path, trap: str) -> None:
    evil = f"import os\nos.system({trap!r})\n"
    names = (
        "json",
        "re",
        "os",
        "sitecustomize",
        "usercustomize",
        "detect_secrets/__init__",
        "detect_secrets/__main__",
        "yaml",
        "_ctypes",
    )
    commit(_start(folder), {f"{name}.py": evil for name in names} | {"evil.pth": f"import os; os.system({trap!r})\n"})


@case
def attributes_of_every_kind(folder: Path, trap: str) -> None:
    attributes = "* text=auto eol=crlf ident working-tree-encoding=UTF-16 export-subst filter=lfs diff=evil\n"
    commit(_start(folder), {"f": "$Id$ $Format:%H$\n"})
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=(attributes + "[attr]x y\n" * 100_000).encode())
    git(folder, "update-index", "--add", "--cacheinfo", f"100644,{blob},.gitattributes")
    git(folder, "commit", "-q", "-m", "attributes")


@case
def git_file_to_elsewhere(folder: Path, trap: str) -> None:
    other = folder.with_name(f"{folder.name}-other")
    _start(other)
    _setting(other, f'[core]\n\tfsmonitor = "{trap}"\n\tworktree = /\n')
    folder.mkdir()
    (folder / ".git").write_text(f"gitdir: {other}/.git\n")


@case
def bare_repository_inside(folder: Path, trap: str) -> None:
    _start(folder)
    inner = {
        "HEAD": "ref: refs/heads/main\n",
        "config": f'[core]\n\tfsmonitor = "{trap}"\n\tbare = true\n',
        "objects/x": "",
        "refs/x": "",
    }
    commit(folder, {f"inner/{name}": content for name, content in inner.items()})
    commit(folder, inner)


@case
def history_of_many_commits(folder: Path, trap: str) -> None:
    _start(folder)
    stream = ["commit refs/heads/main\ncommitter A <a@b> 1 +0000\ndata 1\nx\nfrom refs/heads/main^0\n"]
    stream += [
        f"commit refs/heads/main\ncommitter A <a@b> {n} +0000\ndata 1\nx\n"
        f"M 100644 inline f{n % 7}\ndata {len(str(n))}\n{n}\n"
        for n in range(3000)
    ]
    git(folder, "fast-import", "--quiet", "--force", stdin="".join(stream).encode())
