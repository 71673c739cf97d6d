"""Target specs, addresses and lists of them: what is understood, what is refused and what the refusal says."""

import os
from pathlib import Path

import pytest

from resweep.schema.clock import SystemClock
from resweep.schema.errors import SourceFault, UsageFault
from resweep.sources.base import Credential, Page, WalkLimits
from resweep.sources.catalog import Selection, Surroundings, adapter, configured_specs, make_source
from resweep.sources.gitaddress import AddressRefused, local_address, local_path, parse_remote, protocols
from resweep.sources.gitcommand import GitCommand
from resweep.sources.gitlists import read_list
from resweep.sources.specs import Form, SpecRefused, parse_spec
from tests.support.commands import PlainRunner
from tests.support.gitserver import serve
from tests.support.repositories import Repo

CWD = Path("/somewhere/here")
DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "form", "canonical"),
    [
        ("github:org:Acme", Form.SCOPE, "github:org:acme"),
        ("github:user:x", Form.SCOPE, "github:user:x"),
        ("github:installation:42", Form.SCOPE, "github:installation:42"),
        ("github:search:org:acme+secret", Form.SCOPE, "github:search:org:acme+secret"),
        ("github:all", Form.SCOPE, "github:all"),
        ("github:Acme/Repo", Form.TARGET, "github:acme/repo"),
        ("GITHUB:acme/my-repo-", Form.TARGET, "github:acme/my-repo-"),
        ("github:acme/.github", Form.TARGET, "github:acme/.github"),
        ("github:acme/repo.git", Form.TARGET, "github:acme/repo"),
        ("gitlab:instance", Form.SCOPE, "gitlab:instance"),
        ("gitlab:group:a/b", Form.SCOPE, "gitlab:group:a/b"),
        ("gitlab:user:x", Form.SCOPE, "gitlab:user:x"),
        ("gitlab:a/b/c", Form.TARGET, "gitlab:a/b/c"),
        ("hf:author:X", Form.SCOPE, "huggingface:author:X"),
        ("hf:spaces", Form.SCOPE, "huggingface:spaces"),
        ("huggingface:models", Form.SCOPE, "huggingface:models"),
        ("hf:spaces/A/b", Form.TARGET, "huggingface:spaces/A/b"),
        ("hf:datasets/a/b", Form.TARGET, "huggingface:datasets/a/b"),
        ("hf:gpt2", Form.TARGET, "huggingface:models/gpt2"),
        ("hf:a/b", Form.TARGET, "huggingface:models/a/b"),
        ("dockerhub:namespace:ns", Form.SCOPE, "dockerhub:namespace:ns"),
        ("dockerhub:ns/repo", Form.TARGET, "dockerhub:ns/repo"),
        ("dockerhub:ns/repo:1.0", Form.TARGET, "dockerhub:ns/repo:1.0"),
        ("dockerhub:postgres", Form.TARGET, "dockerhub:library/postgres"),
        (f"dockerhub:ns/repo@{DIGEST}", Form.TARGET, f"dockerhub:ns/repo@{DIGEST}"),
        ("git:.", Form.FOLDER, "git:/somewhere/here"),
        ("git:a/../b", Form.FOLDER, "git:/somewhere/here/b"),
        ("git:/abs/", Form.FOLDER, "git:/abs"),
        ("git:file:///abs/caf%C3%A9", Form.FOLDER, "git:/abs/caf\u00e9"),
        ("git:file:///abs/caf%E9", Form.FOLDER, "git:file:///abs/caf%E9"),
        ("git:HTTPS://Example.ORG:443/A/b.git/", Form.ADDRESS, "git:https://example.org/A/b.git"),
        ("git:ssh://git@Host:22/x", Form.ADDRESS, "git:ssh://git@host/x"),
        ("git:git@Host.example:org/repo.git", Form.ADDRESS, "git:git@host.example:org/repo.git"),
        ("git:host:path", Form.ADDRESS, "git:host:path"),
        ("git:http://127.0.0.1:8080/x", Form.ADDRESS, "git:http://127.0.0.1:8080/x"),
        ("git:git://host/x", Form.ADDRESS, "git:git://host/x"),
        ("git:https://[::1]:8443/x", Form.ADDRESS, "git:https://[::1]:8443/x"),
        ("git:@list.txt", Form.LIST, "git:@/somewhere/here/list.txt"),
    ],
)
def test_t01_specs_are_understood_and_their_canonical_form_reads_as_itself(
    text: str, form: Form, canonical: str
) -> None:
    spec = parse_spec(text, cwd=CWD)
    assert (spec.form, spec.canonical) == (form, canonical)
    assert parse_spec(canonical, cwd=Path("/elsewhere")) == spec


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("git:", "git:PATH"),
        ("git:@", "git:@FILE"),
        ("git:a\0b", "NUL"),
        ("./repo", "did you mean git:./repo"),
        ("/abs/repo", "did you mean git:/abs/repo"),
        ("https://host/x", "did you mean git:https://host/x"),
        ("gihub:acme/x", "did you mean github"),
        ("svn:x", "kinds are git"),
        ("github:acme", "github:org:NAME"),
        ("github:acme/a/b", "not a repository name"),
        ("github:org:", "not an account name"),
        ("github:org:a b", "spaces"),
        ("github:team:x", "github:org:NAME"),
        ("github:acme/..", "not a repository name"),
        ("github:installation:x", "installation number"),
        ("gitlab:onlyone", "gitlab:GROUP/PROJECT"),
        ("gitlab:a//b", "not a group or project name"),
        ("hf:spaces/only", "hf:spaces"),
        ("hf:a/b/c", "hf:spaces"),
        ("dockerhub:a/b/c", "NAMESPACE/REPOSITORY"),
        ("dockerhub:ns/repo:bad tag", "spaces"),
        ("dockerhub:ns/repo@sha256:1", "digest"),
        ("git:-rf", "git:./-rf"),
        ("git:--upload-pack=touch", "git:./--upload-pack"),
        ("git:https://user:secret@host/x", "token_env"),
        ("git:https://token@host/x", "token_env"),
        ("git:ext::sh -c evil", "remote helpers|spaces"),
        ("git:ext::sh", "remote helpers"),
        ("git:ftp://host/x", "not supported"),
        ("git:ssh://-oProxyCommand=evil/x", "host is missing or malformed"),
        ("git:ssh://-evil@host/x", "user name is malformed"),
        ("git:https:///x", "host is missing"),
        ("git:https://host", "path of the repository is missing"),
        ("git:https://host/x#y", "no '#' part"),
        ("git:https://host:99999/x", "cannot be read"),
        ("git:host:-oProxyCommand", "begins with '-'"),
        ("git:file://server/share", "no host"),
    ],
)
def test_refusals_say_what_to_write_instead(text: str, says: str) -> None:
    with pytest.raises(SpecRefused, match=says) as caught:
        parse_spec(text, cwd=CWD)
    assert "secret" not in str(caught.value), "no credential in a message"
    assert isinstance(caught.value, UsageFault)


@pytest.mark.parametrize("text", ["github:\x1b[2J", "git:https://h\x1b[2J/x", "\x1b]0;x\x07:y", "gitlab:a/\u202eb"])
def test_messages_show_hostile_text_harmlessly(text: str) -> None:
    with pytest.raises(SpecRefused) as caught:
        parse_spec(text, cwd=CWD)
    assert str(caught.value).isprintable()


def test_what_exists_as_a_path_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "host:path").mkdir()
    assert parse_spec("git:host:path", cwd=tmp_path).form is Form.FOLDER
    assert parse_spec("git:other:path", cwd=tmp_path).form is Form.ADDRESS


def test_two_ways_to_one_folder_are_one_source(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert parse_spec("git:link", cwd=tmp_path) == parse_spec("git:./real/", cwd=tmp_path)


@pytest.mark.parametrize("kind", ["github", "gitlab", "huggingface", "dockerhub"])
def test_kinds_whose_adapter_is_not_there_yet_say_so(kind: str) -> None:
    with pytest.raises(UsageFault, match="not in this version"):
        adapter(kind)


def test_unknown_kinds_are_told_apart() -> None:
    with pytest.raises(UsageFault, match="there is no kind"):
        adapter("svn")


def test_configured_sources_need_something_to_list(tmp_path: Path) -> None:
    found = configured_specs("git", scope=None, paths=["a"], urls=["https://h/x"], cwd=tmp_path)
    assert [spec.form for spec in found] == [Form.FOLDER, Form.ADDRESS]
    with pytest.raises(UsageFault, match="needs paths, urls or a scope"):
        configured_specs("git", scope=None, paths=[], urls=[], cwd=tmp_path)
    with pytest.raises(UsageFault, match="belong to sources of kind git"):
        configured_specs("github", scope="org:x", paths=["a"], urls=[], cwd=tmp_path)


@pytest.mark.parametrize(
    ("address", "allowed"),
    [("/x", {"file"}), ("https://h/x", {"https"}), ("http://h/x", {"http", "https"}), ("ssh://h/x", {"ssh"}),
     ("git@h:x", {"ssh"}), ("git://h/x", {"git"}), ("file:///x%FF", {"file"})],
)  # fmt: skip
def test_an_address_opens_its_own_transport_only(address: str, allowed: set[str]) -> None:
    assert protocols(address) == allowed


@pytest.mark.parametrize(
    "raw", [b"/plain", b"/sp ace/%41", b"/caf\xe9", b"/line\nbreak", "/\u00fc".encode(), b"/\xff/\x01"]
)
def test_local_addresses_lead_back_to_the_path(raw: bytes) -> None:
    path = os.fsdecode(raw)
    address = local_address(path)
    assert address.encode("utf-8")
    assert local_path(address) == path


def test_display_names_leave_the_ending_out() -> None:
    assert parse_remote("https://Host/a/b.git").display_name == "host/a/b"


# -- lists


def test_a_list_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_bytes(
        b"\xef\xbb\xbf# a comment\r\n\r\nhttps://host/a.git\r\n  git@host:b   # why\nhttps://host/a.git\n"
        b"relative/repo\nhttps://user:pw@host/x\n\xff\xfe\n--upload-pack=x\n/abs/c#sharp\n"
    )
    read = read_list(file)
    assert read.addresses == ("https://host/a.git", "git@host:b", str(tmp_path / "relative/repo"), "/abs/c#sharp")
    assert read.repeated == 1
    assert [fault.entry for fault in read.faults] == [f"{file}:7", f"{file}:8", f"{file}:9"]
    assert not any("pw" in fault.message for fault in read.faults)


def test_a_list_that_cannot_be_read_is_the_sources_fault(tmp_path: Path) -> None:
    with pytest.raises(SourceFault) as caught:
        read_list(tmp_path / "missing")
    assert caught.value.code == "unreadable"


def test_a_list_with_a_bad_line_is_walked_and_never_complete(tmp_path: Path) -> None:
    repo = Repo.work_tree(tmp_path / "src/one", files={"a": "1"})
    command = GitCommand.prepare(tmp_path / "git-home", PlainRunner())
    with serve(tmp_path) as server:
        file = tmp_path / "list"
        lines = [f"{server.url}/src/one/.git", str(repo.path), f"{server.url}/src/none"]
        file.write_text("\n".join(lines))
        source = make_source(
            Selection(kind="git", specs=(parse_spec(f"git:@{file}", cwd=tmp_path),)),
            Surroundings(git=command, clock=SystemClock()),
        )
        pages = list(source.walk(WalkLimits()))
        revisions = [entry.revision for page in pages for entry in page.observations]
        assert revisions[0] == revisions[1] == command.ls_remote(str(repo.path)).digest
        assert revisions[2] is None
        assert [fault.code for page in pages for fault in page.faults] == ["not_found"]
        assert pages[-1].complete
        file.write_text("\n".join([*lines, "ftp://host/x"]))
        assert not list(source.walk(WalkLimits()))[-1].complete


def test_an_address_alone_that_is_down_is_listed_and_the_source_at_fault(tmp_path: Path) -> None:
    command = GitCommand.prepare(tmp_path / "git-home", PlainRunner())
    with serve(tmp_path) as server:
        address = f"{server.url}/x"
    source = make_source(
        Selection(kind="git", specs=(parse_spec(f"git:{address}", cwd=tmp_path),)),
        Surroundings(git=command, clock=SystemClock()),
    )
    pages: list[Page] = []
    with pytest.raises(SourceFault) as caught:
        pages.extend(source.walk(WalkLimits()))
    assert caught.value.code == "connect"
    assert [entry.address for page in pages for entry in page.observations] == [address]


def test_a_credential_is_asked_for_remote_addresses_only(tmp_path: Path) -> None:
    repo = Repo.work_tree(tmp_path / "src", files={"a": "1"})
    command = GitCommand.prepare(tmp_path / "git-home", PlainRunner())
    asked: list[str] = []

    def credential(address: str) -> Credential:
        asked.append(address)
        return Credential(username="user", secret="letmein")

    with serve(tmp_path) as server:
        server.password = "letmein"
        address = f"{server.url}/src/.git"
        source = make_source(
            Selection(
                kind="git",
                specs=(parse_spec(f"git:{address}", cwd=tmp_path), parse_spec(f"git:{repo.path}", cwd=tmp_path)),
            ),
            Surroundings(git=command, clock=SystemClock(), credential=credential),
        )
        pages = list(source.walk(WalkLimits()))
    assert {entry.revision for page in pages for entry in page.observations} == {
        command.ls_remote(str(repo.path)).digest
    }
    assert asked == [address]
    assert "letmein" not in repr(credential("x"))


def test_an_address_is_refused_with_its_reason() -> None:
    with pytest.raises(AddressRefused, match="never begins with"):
        parse_remote("-x://y/z")
