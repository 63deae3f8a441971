"""OpenRLHF's loss functions without the rest of ``openrlhf.models``."""

import importlib
import importlib.util
import sys
from types import ModuleType

PACKAGE = "openrlhf.models"


def openrlhf_module(name: str) -> ModuleType:
    """Import ``openrlhf.models.<name>`` ("loss" or "utils"); works without FlashAttention.

    The package's own ``__init__`` imports its Actor, and with it FlashAttention, which has no CPU
    build. Without FlashAttention, the module is imported under a temporary empty package of the
    same name and path. Call this inside functions only: "utils" imports DeepSpeed.
    """
    full_name = f"{PACKAGE}.{name}"
    if full_name in sys.modules:
        return sys.modules[full_name]
    if PACKAGE in sys.modules or importlib.util.find_spec("flash_attn") is not None:
        return importlib.import_module(full_name)
    root = importlib.import_module("openrlhf")
    bare = ModuleType(PACKAGE)
    bare.__path__ = [f"{root.__path__[0]}/models"]
    sys.modules[PACKAGE] = bare
    try:
        return importlib.import_module(full_name)
    finally:
        del sys.modules[PACKAGE]
