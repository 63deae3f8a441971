"""Checkpoints in two parts: a copy in memory, for which training waits, and the files."""

import os
from pathlib import Path
from typing import Any

import torch
from deepspeed.runtime.checkpoint_engine import TorchCheckpointEngine
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions


class CopyingCheckpointEngine(TorchCheckpointEngine):
    """What DeepSpeed writes its checkpoints through; it keeps copies, until ``write``.

    DeepSpeed's own engine that writes in the background copies nothing: the next optimiser step
    waits for it. torch's asynchronous saving has another format, which ZeRO does not load.
    """

    def __init__(self) -> None:
        super().__init__()
        in_plain_memory = StagingOptions(
            use_pinned_memory=False,
            use_shared_memory=False,
            use_async_staging=False,
            use_non_blocking_copy=False,
        )
        # Its memory serves the next copy too: of pages that are fresh, one takes 8 times as long.
        self._stager = DefaultStager(in_plain_memory)
        self._copies: dict[str, Any] = {}

    def save(self, state_dict: dict[str, Any], path: str) -> None:
        """Copy ``state_dict``, which may then change, as the content of the file ``path``."""
        assert path not in self._copies
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
