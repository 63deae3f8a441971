"""All checks before a run, made at once, and the preparation of what it starts from."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from comas import quickstart
from comas.cold_start.teaching import teach
from comas.config.schema import Config
from comas.engines.cluster.nodes import cluster_address
from comas.engines.cluster.placement import check_gpus, gpus_in_all, plan_policy
from comas.preflight.checks import Check, Checks, PreflightError, errors_of, table
from comas.preflight.cluster import cluster_machine
from comas.preflight.cold_start import with_cold_starts
from comas.preflight.engine_options import passed_on
from comas.preflight.inputs import Inputs, check_held_out, find_inputs
from comas.preflight.learning import check_learning
from comas.preflight.lengths import check_lengths
from comas.preflight.locations import variants_in
from comas.preflight.machine import (
    Gpus,
    Machine,
    choose_device,
    describe_machine,
    host_bytes,
    imagined_machine,
    multiplies_bfloat16,
    needed_driver,
    read_gpus,
    settle_isolation,
    why_on_cpu,
    why_unusable,
)
from comas.preflight.memory import BYTES, GIB, in_words
from comas.preflight.model_shape import ModelShape, trained_parameters
from comas.preflight.models import shapes_of
from comas.preflight.plugins import check_plugins, user_sources
from comas.preflight.sharding import check_memory, settle_sharding, settle_threads
from comas.preflight.sizes import describe_sizes
from comas.run.directory import changes_since_start
from comas.run.prepared import Prepared, Sizes
from comas.run.seals import user_key
from comas.types import Device
from comas.utils.model_folder import adapted_layers
from comas.verification import coding
from comas.verification.reasoning_gym import try_tasks
from comas.verification.sandbox import Isolation
from comas.verification.verifiers import SANDBOXED

RECORDS_BYTES = GIB // 2
"""Disk space for metrics, discussions, logs and plots."""

DISK = "disk"
"""Subject of the check of disk space."""


@dataclass(frozen=True)
class CheckedRun:
    """The checks of a run and what they found; a value is None if a check failed, or if it is still
    to be built."""

    checks: Sequence[Check]
    config: Config
    """The configuration, with sharding and threads set unless no sharding fits."""
    device: Device
    inputs: Inputs
    isolation: Isolation | None
    """Isolation of model-written programs; None if there are none."""
    settings: Sequence[str]
    """Log lines about the chosen sharding, threads and options; empty if no sharding fits."""
    contents: Mapping[str, str] | None
    """Digests of the inputs (``Inputs.contents``), read only for a resumed run, since it takes
    time."""

    @property
    def sizes(self) -> Sizes | None:
        """The sizes of the run; None while the number of questions is unknown."""
        return None if self.inputs.train is None else self.inputs.train.sizes


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
    models, train, validation = found.inputs.models, found.inputs.train, found.inputs.validation
    assert train is not None and train.questions is not None and train.sizes is not None
    assert validation is not None and validation.questions is not None
    assert found.settings
    if found.isolation is not None:
        coding.isolation.set(found.isolation)  # for programs that interaction.program runs
    probe = found.inputs.probe
    return Prepared(
        config=found.config,
        settings=found.settings,
        models=[models[name].location for name in config.models],
        train=train.questions,
        validation=validation.questions,
        probe=() if probe is None else probe.probe,
        device=found.device,
        isolation=found.isolation,
        sizes=train.sizes,
        locations=found.inputs.locations(config),
        contents=found.inputs.contents() if found.contents is None else found.contents,
        sources=user_sources(config),
        disk=next(check.needed for check in found.checks if check.subject == DISK),
        warnings=[check.warning for check in found.checks if check.warning is not None],
    )


def check_run(config: Config) -> CheckedRun:
    """Make all checks of a run of ``config``, without building or writing anything."""
    checks = Checks()
    machine = _find_machine(config, checks)
    device = machine.device
    inputs = with_cold_starts(config, checks, find_inputs(config, checks), machine)
    train = None if inputs.train is None else inputs.train.questions
    folders = {name: model.folder for name, model in inputs.models.items() if model.folder}
    questions = () if train is None else train.questions
    checks += check_lengths(config, folders=folders, questions=questions)
    checks += check_held_out(config, inputs)
    if config.policy.lora.rank is not None and (layers := config.policy.lora.target_modules):
        for folder in folders.values():
            find = partial(adapted_layers, folder, layers)
            checks.find("policy.lora.target_modules", ", ".join(layers), find, show=", ".join)
    checks += check_plugins(config, train)
    checks += check_learning(config, None if inputs.train is None else inputs.train.sizes)
    isolation = _find_isolation(config, checks, inputs)
    shapes = shapes_of(config, inputs.models, device=device)
    settled, said = config, list[str]()
    if shapes.keys() >= {*config.models}:  # else a check of a model has failed
        every = [shapes[name] for name in config.models]
        settled, said = _settle(config, checks, every, machine)
        said += [
            f"update of {name}: a padded row for each sample, slower than packed rows, as {why}"
            for name, model in inputs.models.items()
            if said and (why := model.why_padded)
        ]
        said += passed_on(config) if said else ()
    _find_disk(settled, checks, shapes)
    checks.find("key that seals runs", "readable", user_key, show=lambda _: "readable")
    contents = inputs.contents() if config.resume else None
    if contents is not None and said:  # else sharding and threads are not set as the run's were
        compare = partial(changes_since_start, settled, contents)
        unchanged = "as it began"
        checks.find("the run to resume", unchanged, compare, show=lambda diff: diff or unchanged)
    return CheckedRun(checks, settled, device, inputs, isolation, said, contents)


def describe_run(found: CheckedRun) -> list[str]:
    """Return the lines of a dry run: the table of checks, sizes, settings, warnings and errors."""
    sizes = () if found.sizes is None else describe_sizes(found.config, found.sizes)
    lines = [*table(found.checks), "", *sizes, *found.settings]
    errors = errors_of(found.checks)
    warnings = [check.warning for check in found.checks if check.warning is not None]
    lines += ["", *(f"warning: {warning}" for warning in warnings)]
    lines += [f"error {number}: {error}" for number, error in enumerate(errors, start=1)]
    counts = (
        f"{len(things) or 'no'} {name}{'s' * (len(things) != 1)}"
        for things, name in ((errors, "error"), (warnings, "warning"))
    )
    return [*lines, f"dry run: {', '.join(counts)}; no run was started or written"]


# ---------------------------------------------------------------- machine and programs


def _find_machine(config: Config, checks: Checks) -> Machine:
    """Return the machine of the run: this one, the nodes of a Ray cluster, or one like the paper's
    if "cuda" is wanted and there are no GPUs."""
    in_all = gpus_in_all(plan_policy(config, device="cuda"), len(config.families))
    address = cluster_address()
    if address is not None:
        find = partial(cluster_machine, config, address)
        found = checks.find(f"Ray at {address}", "", find, show=_on_each_node)
        return found or imagined_machine(in_all)
    gpus = read_gpus()
    device = choose_device(config.cluster.device, num_gpus=gpus.num_usable)
    checks += check_device(config, device, gpus)
    if device == "cuda" and gpus.num_usable == 0:
        return imagined_machine(in_all)
    return describe_machine(device)


def check_device(config: Config, device: Device, gpus: Gpus) -> list[Check]:
    """Check the device: on "cuda" its driver and the number of GPUs, on a CPU that it has
    instructions for bfloat16 if that is wanted."""
    wanted = config.cluster.device
    present = device if device == "cpu" or gpus.num_usable else "no GPU"
    chosen = Check("device", wanted, present, warning=why_on_cpu(wanted, gpus))
    others = _check_driver_and_gpus(config, gpus) if device == "cuda" else _check_arithmetic(config)
    return [chosen, *others]


def _check_arithmetic(config: Config) -> list[Check]:
    dtypes = {"rollout.dtype": config.rollout.dtype, "policy.dtype": config.policy.dtype}
    slow = [name for name, dtype in dtypes.items() if dtype == "bfloat16"]
    if not slow or multiplies_bfloat16():
        return []
    warning = (
        f"this CPU has no instructions for bfloat16, and is several times slower in it than in "
        f"float32; set {' '.join(f'{name}=float32' for name in slow)}, which takes more memory"
    )
    return [Check("arithmetic of the CPU", "bfloat16", "float32", warning=warning)]


def _check_driver_and_gpus(config: Config, gpus: Gpus) -> list[Check]:
    placement = plan_policy(config, device="cuda")
    in_all = gpus_in_all(placement, len(config.families))
    wanted = f"{in_all} ({placement.num_gpus} per policy, {placement.policies_per_group} on each)"
    error = None
    if gpus.num_usable == 0:
        error = (
            f"cluster.device=cuda: {why_unusable(gpus)}. On purpose on a CPU: cluster.device=cpu "
            "(for tiny models: configs/quickstart.yaml)"
        )
    driver = Check("NVIDIA driver", f"{needed_driver(gpus)} or newer", gpus.driver or "none", error)
    if error is not None:
        listed = f"0 (the driver lists {gpus.num_listed})" if gpus.num_listed else "0"
        return [driver, Check("GPUs", wanted, listed, error)]
    try:
        check_gpus(placement, num_policies=len(config.families), node_gpus=[gpus.num_usable])
    except ValueError as too_few:
        error = str(too_few)
    return [driver, Check("GPUs", wanted, str(gpus.num_usable), error)]


def _on_each_node(machine: Machine) -> str:
    """``8 GPUs of 79.0 GiB and 1000.0 GiB of memory on a node``"""
    gpus = f"{machine.num_gpus} GPUs of {in_words(machine.gpu_bytes)} and "
    host = f"{in_words(machine.host_bytes)} of memory on a node"
    return host if machine.device == "cpu" else f"{gpus}{host}"


def _find_isolation(config: Config, checks: Checks, inputs: Inputs) -> Isolation | None:
    """Return the isolation of programs if any are run; try the tasks of reasoning_gym."""
    known = inputs.question_sets
    domains = {question.domain for questions in known for question in questions.questions}
    isolation = None
    if not domains.isdisjoint(SANDBOXED):
        wanted = config.verification.sandbox
        find = partial(settle_isolation, wanted, key="verification.sandbox")
        isolation = checks.find("sandbox for programs", wanted or "as strict as can be", find)
    if "reasoning" in domains and config.verifiers["reasoning"] == "reasoning":
        golds = [
            questions.answers[question.question_id]
            for questions in known
            for question in questions.questions
            if question.domain == "reasoning"
        ]
        right = "that judge their own answer right"
        checks.find("tasks of reasoning_gym", right, partial(try_tasks, golds))
    return isolation


# ---------------------------------------------------------------- memory and disk


def _settle(
    config: Config, checks: Checks, shapes: Sequence[ModelShape], machine: Machine
) -> tuple[Config, list[str]]:
    """Return the configuration with sharding and threads set, and log lines about them (empty if
    nothing fits)."""
    settle = partial(settle_sharding, config, shapes=shapes, machine=machine)
    gpus = f", on GPUs of {machine.gpu_bytes / GIB:.0f} GiB" * (machine.device == "cuda")
    found = checks.find(
        "update",
        "a sharding that fits",
        settle,
        show=lambda found: found[1].removeprefix("update: ").partition(" (")[0] + gpus,
    )
    if found is None:
        return config, []
    settled, sharding = found
    if machine.is_imagined:
        *on_gpus, host = check_memory(settled, shapes, replace(machine, host_bytes=host_bytes()))
        checks += [Check(check.subject, check.needed, "0") for check in on_gpus]
        checks.append(host)
    else:
        checks += check_memory(settled, shapes, machine)
    settled, threads = settle_threads(settled, shapes=shapes, machine=machine)
    return settled, [sharding] if threads is None else [sharding, threads]


def _find_disk(config: Config, checks: Checks, shapes: dict[str, ModelShape]) -> None:
    known = {name: trained_parameters(shape, config) for name, shape in shapes.items()}
    sizes = {policy: known.get(config.models[policy], 0) for policy in config.trained_policies}
    folder = Path(config.resume or config.saves)
    num_kept = len(list(folder.glob("checkpoints/step_*"))) if config.resume else 0
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    checks.append(check_disk(config, sizes=sizes, free=free, num_kept=num_kept))


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
    error = None
    if free < needed:
        error = (
            f"saves={config.saves}: {in_words(free)} of disk are free, and the trained models, "
            f"{training.keep_checkpoints} checkpoints and the one being written need "
            f"{in_words(needed)}; free some, name another disk with saves=..., or keep fewer "
            "(training.keep_checkpoints)"
        )
    words = f"{in_words(needed)} (a checkpoint: {in_words(checkpoint) if checkpoint else '?'})"
    return Check(DISK, words, in_words(free), error)
