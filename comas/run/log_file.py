"""train.log: what a process logs while it works on a run."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from comas.utils.files import explaining_errors

logger = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Let everything that is logged in this process also go to ``path``."""
    with explaining_errors(path):
        handler = _RunLog(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        with suppress(OSError):  # of what it could not write, which it has told
            handler.close()


class _RunLog(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A full disk ends the log, with a word; what matters more ends the run by itself."""
        logging.getLogger().removeHandler(self)
        logger.warning("%s ends here: %s", self.baseFilename, sys.exc_info()[1])
