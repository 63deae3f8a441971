"""Says what this Python lacks for the checks, before any of it is imported; or runs them."""

import importlib.util
import re
import sys
from pathlib import Path

REQUIREMENTS = Path("requirements.txt")
NEEDED = (
    "deepspeed", "huggingface_hub", "jinja2", "latex2sympy2_extended", "markdown_it",
    "math_verify", "openrlhf", "pebble", "peft", "pint", "psutil", "pydantic", "ray",
    "safetensors", "sympy", "tokenizers", "torch", "tqdm", "transformers", "vllm", "yaml",
)  # fmt: skip
"""Modules that the checks and the engines import."""
PACKAGES = {"markdown_it": "markdown-it-py", "yaml": "pyyaml"}
"""Where a module's package has another name, but for dashes."""


def lacking() -> list[str]:
    """The pins of what is missing here: ``["deepspeed==0.19.8"]``."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    pins = REQUIREMENTS.read_text()
    return [
        found[0] if (found := re.search(rf"^{package}==\S+", pins, re.MULTILINE)) else package
        for package in (PACKAGES.get(name, name.replace("_", "-")) for name in missing)
    ]


if missing := lacking():
    sys.stderr.write(
        f"error: {sys.executable} lacks {' '.join(missing)}. Install them into it, as scripts/"
        "environment.sh does (`pip install --no-deps`, or from wheels with --no-index "
        "--find-links), or leave python= out\n"
    )
    sys.exit(2)

from scripts.command import read_arguments  # noqa: E402  # after the look at what is there
from scripts.gpu_check.checks import Arguments  # noqa: E402
from scripts.gpu_check.run import ABOUT, main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(read_arguments(Arguments, about=ABOUT)))
