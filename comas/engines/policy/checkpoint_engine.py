"""Checkpoints in two parts: a copy in memory, for which training waits, and the files."""

import os
from pathlib import Path
from typing import Any

import torch
from deepspeed.runtime.checkpoint_engine import TorchCheckpointEngine
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from comas.utils.processes import return_free_memory

_IN_PLAIN_MEMORY = StagingOptions(
    use_pinned_memory=False,
    use_shared_memory=False,
    use_async_staging=False,
    use_non_blocking_copy=False,
)


class CopyingCheckpointEngine(TorchCheckpointEngine):
    """What DeepSpeed writes its checkpoints through; it keeps copies, until ``write``.

    DeepSpeed's own engine that writes in the background copies nothing: the next optimiser step
    waits for it. torch's asynchronous saving has another format, which ZeRO does not load.

    Args:
        keeps_memory: the next copy takes the memory of this one: of pages that are fresh, a copy
            takes 8 times as long. Else it is free once the files are there.
    """

    def __init__(self, *, keeps_memory: bool) -> None:
        super().__init__()
        self._keeps_memory = keeps_memory
        self._stager: DefaultStager | None = None
        self._copies: dict[str, Any] = {}

    def save(self, state_dict: dict[str, Any], path: str) -> None:
        """Copy ``state_dict``, which may then change, as the content of the file ``path``."""
        assert path not in self._copies
        self._stager = self._stager or DefaultStager(_IN_PLAIN_MEMORY)
        self._copies[path] = self._stager.stage(state_dict)

    def write(self) -> None:
        """Write the copies, in any thread; when this returns, they are on the disk.

        No copies may be made meanwhile. Raises OSError when a file cannot be written.
        """
        try:
            for path, copy in self._copies.items():
                # Given the path alone, torch would not say why it cannot write.
                with Path(path).open("wb") as file:
                    torch.save(copy, file)
                    file.flush()
                    os.fsync(file.fileno())
        finally:
            self._copies.clear()
            if self._stager is not None and not self._keeps_memory:
                self._stager.close()
                self._stager = None
                return_free_memory()
