"""All checks before a run, made at once, and the preparation of what it starts from."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile

from comas import quickstart
from comas.cold_start.teaching import teach
from comas.config.schema import Config
from comas.engines.cluster.nodes import alive_nodes, cluster_address, joined, on_nodes
from comas.engines.cluster.placement import Node, check_gpus, gpus_in_all, plan_policy
from comas.preflight.checks import Check, Checks, PreflightError, errors_of, table
from comas.preflight.conflicts import passed_on
from comas.preflight.inputs import Inputs, check_held_out, find_inputs, shapes_of
from comas.preflight.locations import variants_in
from comas.preflight.machine import (
    Machine,
    choose_device,
    count_gpus,
    describe_machine,
    host_bytes,
    imagined_machine,
    multiplies_bfloat16,
    settle_isolation,
    why_no_gpu,
    why_on_cpu,
)
from comas.preflight.memory import BYTES, GIB, ModelShape, in_words, trained_parameters
from comas.preflight.plugins import check_plugins, user_sources
from comas.preflight.sharding import check_memory, settle_sharding, settle_threads
from comas.preflight.sizes import derive_sizes, describe_sizes
from comas.run.directory import changes_since_start
from comas.run.prepared import Prepared, Sizes
from comas.run.seals import user_key
from comas.types import Device
from comas.utils.files import PARTIAL, explaining_errors
from comas.utils.model_folder import adapted_layers
from comas.verification import coding
from comas.verification.sandbox import Isolation
from comas.verification.verifiers import SANDBOXED

RECORDS_BYTES = GIB // 2
"""Disk space for metrics, discussions, logs and plots."""
SHARED_MEMORY, SPARE_BYTES = Path("/dev/shm"), GIB // 16
NEEDS_SHARED_MEMORY = 10**10
"""Bytes above which Ray's object store has to be in shared memory."""
DISK = "disk"
"""Subject of the check of disk space."""


@dataclass(frozen=True)
class CheckedRun:
    """The checks of a run and what they found; a value is None if a check failed."""

    checks: Sequence[Check]
    config: Config
    """The configuration, with sharding and threads set unless no sharding fits."""
    device: Device
    inputs: Inputs
    sizes: Sizes | None
    isolation: Isolation | None
    """Isolation of model-written programs; None if there are none."""
    settings: Sequence[str]
    """Log lines about the chosen sharding, threads and options; empty if no sharding fits."""

    @property
    def warnings(self) -> list[str]:
        return [check.warning for check in self.checks if check.warning is not None]


def prepare(config: Config) -> Prepared:
    """Check everything; then build the quick-start society if it is named and missing, and teach
    models their cold start.

    Raises:
        PreflightError: with all errors at once, before anything is built.
        RuntimeError: a cold start failed.
    """
    found = check_run(config)
    if not errors_of(found.checks) and not found.inputs.is_built:
        quickstart.build_society(
            Path(config.saves), seed=config.seed, variants=variants_in(config.models)
        )
        found = check_run(config)
    untaught = [model.cold_start for model in found.inputs.models.values() if model.cold_start]
    if not errors_of(found.checks) and untaught:
        for cold_start in untaught:
            teach(cold_start, device=found.device)
        found = check_run(config)
    if errors_of(found.checks):
        raise PreflightError(found.checks)
    inputs = found.inputs
    assert inputs.train is not None and inputs.validation is not None and found.sizes is not None
    if found.isolation is not None:
        coding.isolation.set(found.isolation)  # for programs that interaction.program runs
    return Prepared(
        config=found.config,
        settings=found.settings,
        models=[inputs.models[name].location for name in config.models],
        train=inputs.train,
        validation=inputs.validation,
        probe=inputs.probe or (),
        device=found.device,
        isolation=found.isolation,
        sizes=found.sizes,
        locations=inputs.locations,
        contents=inputs.contents,
        sources=user_sources(config),
        disk=next(check.needed for check in found.checks if check.subject == DISK),
        warnings=found.warnings,
    )


def check_run(config: Config) -> CheckedRun:
    """Make all checks of a run of ``config``, without building or writing anything."""
    checks = Checks()
    machine = _find_machine(config, checks)
    inputs = find_inputs(config, checks)
    train, validation, sizes = inputs.train, inputs.validation, None
    plugins = check_plugins(config, train)
    if train is not None and not (config.interaction.program and errors_of(plugins)):  # may hang
        derive = partial(derive_sizes, config, num_questions=len(train.questions))
        sizes = checks.find("steps", "1 or more", derive, show=lambda found: str(found.num_steps))
    if train is not None and validation is not None:
        checks.append(check_held_out(train, validation))
    if config.policy.lora.rank is not None and (layers := config.policy.lora.target_modules):
        for folder in (model.folder for model in inputs.models.values() if model.folder):
            find = partial(adapted_layers, folder, layers)
            checks.find("policy.lora.target_modules", ", ".join(layers), find, show=", ".join)
    checks += plugins
    known = (found.questions for found in (train, validation) if found is not None)
    domains, isolation = {question.domain for question in chain(*known)}, None
    if not domains.isdisjoint(SANDBOXED):
        wanted = config.verification.sandbox
        settle = partial(settle_isolation, wanted, key="verification.sandbox")
        isolation = checks.find("sandbox for programs", wanted or "as strict as can be", settle)
    shapes, settings = shapes_of(config, inputs.models), list[str]()
    if shapes.keys() >= {*config.models}:  # else a check of a model has failed
        every = [shapes[name] for name in config.models]
        if settled := _settle(config, checks, every, machine):
            config, settings = settled
            if config.resume is not None:  # its config.yaml has the sharding that was settled
                checks.find(
                    "run to resume",
                    "as it began",
                    partial(changes_since_start, config, inputs.contents),
                    show=lambda changes: "changed" if changes else "as it began",
                )
    _find_disk(config, checks, shapes)
    if cluster_address() is None:
        free = shutil.disk_usage(SHARED_MEMORY).free
        checks.append(check_object_store(config.cluster.object_store_mib << 20, free=free))
    checks.find("key that seals runs", "readable", user_key, show=lambda _: "readable")
    return CheckedRun(checks, config, machine.device, inputs, sizes, isolation, settings)


def describe_run(found: CheckedRun) -> list[str]:
    """Return the lines of a dry run: the table of checks, sizes, settings, warnings and errors."""
    sizes = [] if found.sizes is None else describe_sizes(found.config, found.sizes)
    errors = errors_of(found.checks)
    counts = (
        f"{len(things) or 'no'} {name}{'s' * (len(things) != 1)}"
        for things, name in ((errors, "error"), (found.warnings, "warning"))
    )
    return [
        *(*table(found.checks), "", *sizes, *found.settings, ""),
        *(f"warning: {warning}" for warning in found.warnings),
        *(f"error {number}: {error}" for number, error in enumerate(errors, start=1)),
        f"dry run: {', '.join(counts)}; no run was started or written",
    ]


def _find_machine(config: Config, checks: Checks) -> Machine:
    """Return the machine of the run: this one, the nodes of a Ray cluster, or one like the paper's
    if "cuda" is wanted and there are no GPUs."""
    in_all = gpus_in_all(plan_policy(config, device="cuda"), len(config.families))
    if (address := cluster_address()) is not None:
        found = checks.find(
            f"Ray at {address}",
            "",
            partial(cluster_machine, config, address),
            show=lambda node: f"{node.num_gpus} GPUs, {in_words(node.host_bytes)} on a node",
        )
        return found or imagined_machine(in_all)
    num_gpus = count_gpus()
    device = choose_device(config.cluster.device, num_gpus=num_gpus)
    checks += check_device(config, device, num_gpus=num_gpus)
    is_imagined = device == "cuda" and num_gpus == 0
    return imagined_machine(in_all) if is_imagined else describe_machine(device)


def check_device(config: Config, device: Device, *, num_gpus: int) -> list[Check]:
    """Check the device: on "cuda" the number of GPUs, on a CPU that it has instructions for
    bfloat16 if that is wanted."""
    wanted = config.cluster.device
    checks = Checks(
        [Check("device", wanted, device, warning=why_on_cpu(wanted, num_gpus=num_gpus))]
    )
    dtypes = {"rollout.dtype": config.rollout.dtype, "policy.dtype": config.policy.dtype}
    slow = [f"{name}=float32" for name, dtype in dtypes.items() if dtype == "bfloat16"]
    if device == "cuda":
        placement, num_policies = plan_policy(config, device="cuda"), len(config.families)

        def enough() -> int:
            if num_gpus == 0:
                raise ValueError(
                    f"cluster.device=cuda, but torch sees no GPU: {why_no_gpu()}. On purpose on a "
                    "CPU: cluster.device=cpu (for tiny models: configs/quickstart.yaml)"
                )
            check_gpus(placement, num_policies=num_policies, node_gpus=[num_gpus])
            return num_gpus

        on_each = f"{placement.num_gpus} per policy, {placement.policies_per_group} on each"
        checks.find("GPUs", f"{gpus_in_all(placement, num_policies)} ({on_each})", enough)
    elif slow and not multiplies_bfloat16():
        warning = (
            "this CPU has no instructions for bfloat16, and is several times slower in it than in "
            f"float32; set {' '.join(slow)}, which takes more memory"
        )
        checks.append(Check("arithmetic of the CPU", "bfloat16", "float32", warning=warning))
    return checks


def cluster_machine(config: Config, address: str) -> Machine:
    """Return the resources to plan with on the Ray cluster at ``address``: the least that a node
    with engines has, but the most GPUs, since they share a host's memory.

    Raises ValueError if "cuda" is wanted and no node has a GPU, the cluster cannot be joined, or
    its nodes do not share the folder ``saves``.
    """
    with joined(address):
        nodes = alive_nodes()
        most = max(node.num_gpus for node in nodes)
        device = choose_device(config.cluster.device, num_gpus=int(most))
        if device == "cuda" and not most:
            raise ValueError(
                "cluster.device=cuda, but no node of the Ray cluster has GPUs. Start Ray where "
                "there are some (`ray start --address=...`), or set cluster.device=cpu"
            )
        # A head node without GPUs holds no engines.
        holders = [node for node in nodes if (node.num_gpus if device == "cuda" else node.num_cpus)]
        check_shared(Path(config.saves), holders)
        machines = on_nodes(holders, describe_machine, device)
    scarce = ("gpu_bytes", "host_bytes", "has_cuda_compiler", "num_cores")
    least = {name: min(getattr(machine, name) for machine in machines) for name in scarce}
    return replace(machines[0], num_gpus=max(machine.num_gpus for machine in machines), **least)


def check_shared(saves: Path, nodes: Sequence[Node]) -> None:
    """Raise ValueError unless every node sees what this machine writes into ``saves``, where ranks
    write checkpoints and engines read models."""
    with explaining_errors(saves):
        saves.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(prefix=PARTIAL, dir=saves.absolute()) as file:
            seen = on_nodes(nodes, Path.is_file, Path(file.name))
    blind = [node.address for node, is_seen in zip(nodes, seen, strict=True) if not is_seen]
    if blind:
        raise ValueError(
            f"saves={saves.absolute()} is not the same folder on every node of the Ray cluster: "
            f"{', '.join(blind)} cannot read there what is written here. Name a folder of a file "
            "system that all nodes share, at the same path"
        )


def _settle(
    config: Config, checks: Checks, shapes: Sequence[ModelShape], machine: Machine
) -> tuple[Config, list[str]] | None:
    """Return the configuration with sharding and threads set, and log lines about these and the
    engines' options; None if nothing fits."""
    settle = partial(settle_sharding, config, shapes=shapes, machine=machine)
    gpus = f", on GPUs of {machine.gpu_bytes / GIB:.0f} GiB" * (machine.device == "cuda")
    found = checks.find(
        "update",
        "a sharding that fits",
        settle,
        show=lambda found: found[1].removeprefix("update: ").partition(" (")[0] + gpus,
    )
    if found is None:
        return None
    settled, sharding = found
    if machine.is_imagined:
        *on_gpus, host = check_memory(settled, shapes, replace(machine, host_bytes=host_bytes()))
        checks += [*(Check(check.subject, check.needed, "0") for check in on_gpus), host]
    else:
        checks += check_memory(settled, shapes, machine)
    settled, threads = settle_threads(settled, shapes=shapes, machine=machine)
    return settled, [sharding, *filter(None, [threads]), *passed_on(config)]


def _find_disk(config: Config, checks: Checks, shapes: Mapping[str, ModelShape]) -> None:
    known = {name: trained_parameters(shape, config) for name, shape in shapes.items()}
    sizes = {policy: known.get(config.models[policy], 0) for policy in config.trained_policies}
    folder = Path(config.resume or config.saves)
    num_kept = len(list(folder.glob("checkpoints/step_*"))) if config.resume else 0
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        checks.append(Check(DISK, "a folder", "a file", f"saves={folder}: {there} is a file"))
        return
    free = shutil.disk_usage(there).free
    checks.append(check_disk(config, sizes=sizes, free=free, num_kept=num_kept))


def check_object_store(store: int, *, free: int) -> Check:
    """Check the shared memory for Ray's object store of ``store`` bytes. Above 10 GB Ray does not
    start without it; below, it takes a folder on disk."""
    error = None
    if store > NEEDS_SHARED_MEMORY and free < store + SPARE_BYTES:
        error = (
            f"cluster.object_store_mib={store >> 20}: {SHARED_MEMORY} has {in_words(free)}, and "
            "Ray does not start with less than its object store; lower the key, or enlarge that "
            "(docker run --shm-size)"
        )
    return Check("shared memory", in_words(store), in_words(free), error)


def check_disk(config: Config, *, sizes: Mapping[int, int], free: int, num_kept: int = 0) -> Check:
    """Check the disk space for the kept checkpoints, the best one and the one being written, less
    the ``num_kept`` of a resumed run; for the trained agents' models; and for records. ``sizes``
    are the parameters of each trained policy.

    A checkpoint holds Adam's two moments and the float32 weights; below ZeRO-3 also the model's own
    weights, unless these are the float32 weights.

    Example: four policies of 3.09e9 parameters in bfloat16: 14 bytes each under ZeRO-2 are 173
    GB, 12 bytes under ZeRO-3 148 GB.
    """
    policy, training = config.policy, config.training
    is_own_master = policy.zero_stage == 0 and policy.dtype == "float32"
    holds_weights = policy.zero_stage != 3 and not is_own_master
    checkpoint = (8 + 4 + holds_weights * BYTES[policy.dtype]) * sum(sizes.values())
    num_best = int(training.keep_best is not None)
    num_checkpoints = max(1, training.keep_checkpoints + num_best + 1 - num_kept)
    models = BYTES[policy.dtype] * sum(sizes.get(p, 0) for p in config.policy_of_agent)
    needed = num_checkpoints * checkpoint + models + RECORDS_BYTES
    where = f"saves={config.saves}" if config.resume is None else f"resume={config.resume}"
    error = None
    if free < needed:
        error = (
            f"{where}: {in_words(free)} of disk are free, and the trained models, kept checkpoints "
            f"and the one being written need {in_words(needed)}; free some, or use "
            "another disk (saves=...; a run to resume may be moved there); a new run may also keep "
            "fewer (training.keep_checkpoints)"
        )
    words = f"{in_words(needed)} (a checkpoint: {in_words(checkpoint) if checkpoint else '?'})"
    return Check(DISK, words, in_words(free), error)
