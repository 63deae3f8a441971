"""Makes the programs of a virtual environment that was copied or moved run from where it lies now:
``python scripts/relocate.py FORMER FOLDER``, started by scripts/environment.sh.

Only the standard library is imported, as nothing else needs to be there yet.
"""

import re
import shutil
import sys
from pathlib import Path

START = b"""#!/bin/sh
'''exec' "%s" "$0" "$@"
' '''"""
"""Of a program in Python: unlike ``#!PATH`` it takes blanks, and any length."""


def relocate(former: Path, folder: Path) -> None:
    """Let all in ``folder/bin`` that names the folder ``former`` name ``folder`` instead.

    Files are replaced, never changed in place: a copy may consist of hard links to the original.
    """
    new = bytes(folder)
    # Not as a part of another name: /a/.venv is none of /a/.venv-other.
    named = re.compile(re.escape(bytes(former)) + rb"(?![\w.+-])")
    starts = re.compile(rb"#!" + named.pattern + rb"/bin/python.*")
    for path in sorted((folder / "bin").iterdir()):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if b"\0" in content or not named.search(content):
            continue
        first, newline, rest = content.partition(b"\n")
        if starts.fullmatch(first):
            first = START % (new + b"/bin/python")
        partial = path.with_name(f"{path.name}.partial")
        partial.write_bytes(named.sub(lambda _: new, first + newline + rest))
        shutil.copymode(path, partial)
        partial.replace(path)


if __name__ == "__main__":
    relocate(Path(sys.argv[1]), Path(sys.argv[2]))
