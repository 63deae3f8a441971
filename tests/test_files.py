"""Files that survive kills and full disks, and locks."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from comas.utils.files import FileError, append_lines, locked, read_lines, write_files

TRIES_TO_LOCK = """
import sys
from pathlib import Path
from comas.utils.files import locked
with locked(Path(sys.argv[1]), remedy="wait for it"):
    pass
"""


def numbers(path: Path) -> list[int]:
    return read_lines(path, json.loads, remedy="Delete it")


def test_of_several_files_none_is_replaced_when_one_cannot_be_written(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(FileError, match=r"cannot write .*missing/b: No such file"):
        write_files({tmp_path / "a": "new", tmp_path / "missing" / "b": "new"})
    assert (tmp_path / "a").read_text() == "old"


def test_a_file_is_replaced_at_once(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with path.open() as reader:
        write_files({path: "new"})
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("whole", [b"", b"1\n2\n"])
def test_a_line_that_a_kill_cut_off_is_not_read_and_the_next_one_replaces_it(tmp_path, whole):
    path = tmp_path / "log.jsonl"
    append_lines(path, whole.splitlines())
    with path.open("ab") as file:
        file.write(b"[3, ")
    assert numbers(path) == [int(line) for line in whole.splitlines()]
    append_lines(path, [])
    assert path.read_bytes() == whole
    append_lines(path, [b"4"])
    assert path.read_bytes() == whole + b"4\n"


def test_a_full_disk_keeps_the_whole_lines_and_no_half_one(tmp_path):
    path = tmp_path / "log.jsonl"
    append_lines(path, [b"1"])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(
            FileError,
            match=r"cannot write .*log.jsonl: File too large \(\d+ MiB and \d+ inodes are",
        ):
            append_lines(path, [b"22", b"33333333"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"1\n22\n"


def test_a_lock_holds_against_other_processes_and_a_second_attempt_of_this_one(tmp_path):
    command = [sys.executable, "-c", TRIES_TO_LOCK, str(tmp_path)]
    with locked(tmp_path, remedy=""):
        with pytest.raises(FileError, match="written by process"), locked(tmp_path, remedy=""):
            pass
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert f"is being written by process {os.getpid()}: wait for it" in refused.stderr
    subprocess.run(command, check=True)
    with locked(tmp_path, remedy=""):
        pass
