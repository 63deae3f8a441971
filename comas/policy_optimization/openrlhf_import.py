"""OpenRLHF's loss functions without the rest of ``openrlhf.models``."""

import importlib
import sys
from types import ModuleType

PACKAGE = "openrlhf.models"


def openrlhf_module(name: str) -> ModuleType:
    """Import ``openrlhf.models.<name>`` ("loss" or "utils") alone.

    The package's own ``__init__`` imports its Actor, and with it FlashAttention and others that are
    not installed. So the module is imported under a temporary empty package of the same name and
    path. Call this inside functions only: "utils" imports DeepSpeed.
    """
    full_name = f"{PACKAGE}.{name}"
    if not {full_name, PACKAGE}.isdisjoint(sys.modules):
        return importlib.import_module(full_name)
    root = importlib.import_module("openrlhf")
    bare = ModuleType(PACKAGE)
    bare.__path__ = [f"{root.__path__[0]}/models"]
    sys.modules[PACKAGE] = bare
    try:
        return importlib.import_module(full_name)
    finally:
        del sys.modules[PACKAGE]
