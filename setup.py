"""Makes ``comas`` and ``evaluation`` importable; requirements*.txt hold what they need."""

from setuptools import find_packages, setup

setup(
    name="comas",
    version="0.14.0",
    description="Co-evolving multi-agent systems via interaction rewards",
    license="MIT",
    python_requires=">=3.11,<3.13",
    packages=find_packages(include=["comas", "comas.*", "evaluation", "evaluation.*"]),
    # For data.train=reasoning_gym; one of its dependencies is compiled as it is installed.
    extras_require={"reasoning-gym": ["reasoning-gym==0.1.25"]},
)
