"""Where a dataset is on the Hugging Face hub, and what the conversion needs of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType


class DataPreparationError(ValueError):
    """Data that cannot be prepared, with what the user can do about it."""


@dataclass(frozen=True)
class Source:
    """One split of one dataset, at one commit.

    Example: ``Source("openai/gsm8k", configs=("main",), split="test", revision="740312ad...",
    licence="mit", columns={"question": str, "answer": str}, num_rows=1319)``
    """

    hub_name: str
    configs: tuple[str, ...]
    """Read one after the other; what the hub calls subsets."""
    split: str
    revision: str
    """The full hash of a commit of the dataset's repository on the hub."""
    licence: str | None
    """As the dataset's card states it; None: it states none."""
    columns: Mapping[str, type | UnionType]
    """The columns that the conversion reads, with the Python type of their values."""
    num_rows: int | None = None
    """Rows at that commit, all configs together; None: not known to us."""
    is_gated: bool = False
    """Whether the hub asks for an account that accepted the dataset's terms."""
