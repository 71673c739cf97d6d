"""Write findings to standard output or to a folder, in one of four formats."""

import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TextIO

from ...queue.findings_reads import FindingRow
from ...schema.errors import UsageFault
from .document import SCHEMA, to_json
from .files import make_folder, safe_name, whole_file
from .sarif import RUNS_A_FILE, SarifFile, SarifFull
from .tables import Owned, write_csv, write_json, write_jsonl

Format = Literal["json", "jsonl", "csv", "sarif"]

INDEX_NAME = "index.json"
_WRITERS: dict[str, Callable[[Iterable[Owned], TextIO], int]] = {
    "json": write_json,
    "jsonl": write_jsonl,
    "csv": write_csv,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One file of an export."""

    name: str
    findings: int
    source: str | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote."""

    findings: int
    files: tuple[ExportedFile, ...] = ()
    left_out_fixed: int = 0  # SARIF has no place for what is gone


def export_to_stream(rows: Iterable[Owned], form: Format, out: TextIO, *, version: str) -> Exported:
    """Write everything to one stream.

    SARIF is put together in a temporary file first, so that nothing is printed of a set that breaks GitHub's limits:
    ``UsageFault`` says what to do instead.
    """
    if form != "sarif":
        return Exported(findings=_WRITERS[form](rows, out))
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="", prefix="resweep-export-") as spool:
        file = SarifFile(spool.write, version=version)
        fixed = 0
        for row, owners in rows:
            if row.life == "fixed":
                fixed += 1
                continue
            try:
                file.add(row, owners)
            except SarifFull:
                message = (
                    f"these findings do not fit into one SARIF file ({RUNS_A_FILE} repositories, 10 MB gzipped); "
                    "write one file per repository with --output DIR, or narrow the filters"
                )
                raise UsageFault(message) from None
        file.end()
        spool.seek(0)
        shutil.copyfileobj(spool, out)
    return Exported(findings=file.results, left_out_fixed=fixed)


def export_to_folder(rows: Iterable[Owned], form: Format, folder: Path, *, version: str) -> Exported:
    """Write files into a folder, each of them whole or not at all; ``index.json`` is written last and names them.

    SARIF becomes one file per repository (as code scanning takes it), and further ones where a limit needs it.
    """
    make_folder(folder)
    if form == "sarif":
        exported = _sarif_files(rows, folder, version)
    else:
        name = f"findings.{form}"
        with whole_file(folder / name) as out:
            count = _WRITERS[form](rows, out)
        exported = Exported(findings=count, files=(ExportedFile(name=name, findings=count),))
    _write_index(folder, form, exported)
    return exported


class _Folder:
    """The SARIF files of one export: one open at a time."""

    def __init__(self, folder: Path, version: str) -> None:
        self._folder = folder
        self._version = version
        self._stack = ExitStack()
        self._file: SarifFile | None = None
        self._first: FindingRow | None = None
        self._part = 0
        self.files: list[ExportedFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._close()
        self._stack.__exit__(kind, error, trace)

    def add(self, row: FindingRow, owners: tuple[str, ...]) -> None:
        """Add a finding to the file of its repository, or to that file's next part."""
        if self._file is None or self._first is None or self._first.target_id != row.target_id:
            self._open(row, part=1)
        assert self._file is not None  # noqa: S101 - opened just above
        try:
            self._file.add(row, owners)
        except SarifFull:
            self._open(row, part=self._part + 1)
            self._file.add(row, owners)

    def _open(self, row: FindingRow, *, part: int) -> None:
        self._close()
        self._first, self._part = row, part
        out = self._stack.enter_context(whole_file(self._folder / self._name()))
        self._file = SarifFile(out.write, version=self._version, part=part)

    def _close(self) -> None:
        if self._file is None or self._first is None:
            return
        self._file.end()
        self._stack.close()
        self.files.append(
            ExportedFile(
                name=self._name(),
                findings=self._file.results,
                source=self._first.source,
                target=self._first.display_name,
            )
        )
        self._file = None

    def _name(self) -> str:
        assert self._first is not None  # noqa: S101 - a file is open
        suffix = "" if self._part == 1 else f".{self._part}"
        return f"{safe_name(self._first.source, self._first.target)}{suffix}.sarif"


def _sarif_files(rows: Iterable[Owned], folder: Path, version: str) -> Exported:
    """Write the SARIF files; rows of one repository come together."""
    fixed = 0
    with _Folder(folder, version) as files:
        for row, owners in rows:
            if row.life == "fixed":
                fixed += 1
            else:
                files.add(row, owners)
    return Exported(findings=sum(file.findings for file in files.files), files=tuple(files.files), left_out_fixed=fixed)


def _write_index(folder: Path, form: Format, exported: Exported) -> None:
    """Name the files of this export; files of an earlier one that it does not name are stale."""
    items = [
        {
            "name": file.name,
            "findings": file.findings,
            "source": file.source,
            "target": file.target,
            "sha256": _digest(folder / file.name),
        }
        for file in exported.files
    ]
    with whole_file(folder / INDEX_NAME) as out:
        out.write(to_json({"schema": SCHEMA, "format": form, "items": items, "total": exported.findings}) + "\n")


def _digest(path: Path) -> str:
    """Hash a file."""
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
