"""What a run needs beside what is there, all of it at once, and what it would do."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from comas import quickstart
from comas.cold_start.teaching import teach
from comas.config.schema import Config, Judge
from comas.engines.cluster.nodes import cluster_address
from comas.engines.cluster.placement import check_gpus, gpus_in_all, plan_policy
from comas.interaction.schedules import tools_of
from comas.preflight.cluster import cluster_machine
from comas.preflight.cold_start import with_cold_starts
from comas.preflight.engine_options import passed_on
from comas.preflight.inputs import Inputs, find_inputs, held_out_need, shapes_of, variants_in
from comas.preflight.learning import learning_needs
from comas.preflight.lengths import length_needs
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
from comas.preflight.needs import Checklist, Need, PreflightError, faults_of, table
from comas.preflight.plan import memory_needs, settle_sharding, settle_threads
from comas.preflight.plugins import plugin_needs, user_sources
from comas.preflight.sizes import describe_sizes, silent_discussions
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
"""Room on the disk for metrics, discussions, logs and plots."""

DISK = "disk"
"""The subject of the need of room for the run's folder."""


@dataclass(frozen=True)
class Findings:
    """A configuration beside its machine and files. What could not be found out is None: a line of
    ``needs`` says why, or it is still to be built."""

    needs: Sequence[Need]
    """The lines of the table."""
    config: Config
    """With what it leaves to the machine decided, once that can be."""
    device: Device
    inputs: Inputs
    isolation: Isolation | None
    """Isolation of model-written programs; None where no question asks for one."""
    plan: Sequence[str]
    """How the update fits into memory, and the threads, in words; empty where none fits."""
    contents: Mapping[str, str] | None
    """See ``Inputs.contents``; None, as reading all weights takes time, of a run that begins."""

    @property
    def sizes(self) -> Sizes | None:
        """Of the run, once it is known how many questions there are."""
        return None if self.inputs.train is None else self.inputs.train.sizes


def prepare(config: Config) -> Prepared:
    """Check machine, models and questions, all of them before anything is built; then build the
    quick-start society if it is named and not there, and teach models their cold start.

    Raises:
        PreflightError: everything that is missing, broken or too little, at once.
        RuntimeError: a cold start failed.
    """
    found = survey_run(config)
    if not faults_of(found.needs) and not found.inputs.is_built:
        quickstart.build_society(
            Path(config.saves), seed=config.seed, variants=variants_in(config.models)
        )
        found = survey_run(config)
    untaught = [model.cold_start for model in found.inputs.models.values() if model.cold_start]
    if not faults_of(found.needs) and untaught:
        for cold_start in untaught:
            teach(cold_start, device=found.device)
        found = survey_run(config)
    if faults_of(found.needs):
        raise PreflightError(found.needs)
    models, train, validation = found.inputs.models, found.inputs.train, found.inputs.validation
    assert train is not None and train.questions is not None and train.sizes is not None
    assert validation is not None and validation.questions is not None
    assert found.plan
    if found.isolation is not None:
        coding.isolation.set(found.isolation)  # of programs that tools run in this process
    probe = found.inputs.probe
    return Prepared(
        config=found.config,
        plan=found.plan,
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
        disk=next(need.needed for need in found.needs if need.subject == DISK),
        doubts=[need.doubt for need in found.needs if need.doubt is not None],
    )


def survey_run(config: Config) -> Findings:
    """Look at everything that a run of ``config`` needs."""
    needs = Checklist()
    machine = _find_machine(config, needs)
    device = machine.device
    inputs = with_cold_starts(config, needs, find_inputs(config, needs), machine)
    train = None if inputs.train is None else inputs.train.questions
    folders = {name: model.folder for name, model in inputs.models.items() if model.folder}
    questions = () if train is None else train.questions
    needs += length_needs(config, folders=folders, questions=questions)
    needs += held_out_need(config, inputs)
    if config.policy.lora.rank is not None and (layers := config.policy.lora.target_modules):
        for folder in folders.values():
            find = partial(adapted_layers, folder, layers)
            needs.find("policy.lora.target_modules", ", ".join(layers), find, show=", ".join)
    needs += plugin_needs(config, train)
    needs += learning_needs(config, None if inputs.train is None else inputs.train.sizes)
    if (judge := config.judge) is not None:
        needs.find("judge", judge.model, partial(_find_judge, config, judge))
    isolation = _find_isolation(config, needs, inputs)
    shapes = shapes_of(config, inputs, device=device)
    settled, plan = config, list[str]()
    if shapes.keys() >= {*config.models}:  # one that is unknown has a fault of its own
        every = [shapes[name] for name in config.models]
        settled, plan = _plan_memory(config, needs, every, machine)
        plan += [
            f"update of {name}: a padded row for each sample, slower than packed rows, as {why}"
            for name, model in inputs.models.items()
            if plan and (why := model.why_padded)
        ]
        plan += passed_on(config) if plan else ()
    _look_at_disk(settled, needs, shapes)
    needs.find("key that seals runs", "readable", user_key, show=lambda _: "readable")
    contents = inputs.contents() if config.resume else None
    if contents is not None and plan:  # else settings are not settled as the run's were
        compare = partial(changes_since_start, settled, contents)
        unchanged = "as it began"
        needs.find("the run to resume", unchanged, compare, show=lambda said: said or unchanged)
    return Findings(needs, settled, device, inputs, isolation, plan, contents)


def describe_run(found: Findings) -> list[str]:
    """Return what a dry run says: the table of needs, the sizes, and the faults."""
    sizes = () if found.sizes is None else describe_sizes(found.config, found.sizes)
    lines = [*table(found.needs), "", *sizes, *found.plan]
    faults = faults_of(found.needs)
    doubts = [need.doubt for need in found.needs if need.doubt is not None]
    lines += ["", *(f"doubt: {doubt}" for doubt in doubts)]
    lines += [f"fault {number}: {fault}" for number, fault in enumerate(faults, start=1)]
    counts = (
        f"{len(things) or 'no'} {name}{'s' * (len(things) != 1)}"
        for things, name in ((faults, "fault"), (doubts, "doubt"))
    )
    return [*lines, f"dry run: {', '.join(counts)}; no run was started or written"]


# ---------------------------------------------------------------- machine and programs


def _find_machine(config: Config, needs: Checklist) -> Machine:
    """Return the machine to plan for: this one, the nodes of a Ray cluster, or one like the paper's
    where there are no GPUs to plan for."""
    in_all = gpus_in_all(plan_policy(config, device="cuda"), len(config.families))
    address = cluster_address()
    if address is not None:
        find = partial(cluster_machine, config, address)
        found = needs.find(f"Ray at {address}", "", find, show=_on_each_node)
        return found or imagined_machine(in_all)
    gpus = read_gpus()
    device = choose_device(config.cluster.device, num_gpus=gpus.num_usable)
    needs += device_needs(config, device, gpus)
    if device == "cuda" and gpus.num_usable == 0:
        return imagined_machine(in_all)
    return describe_machine(device)


def device_needs(config: Config, device: Device, gpus: Gpus) -> list[Need]:
    """Return the device that a run takes; on "cuda" also a driver that its torch can use, and GPUs
    for every policy; on a CPU a doubt if it has no instructions for the bfloat16 that is wanted."""
    wanted = config.cluster.device
    present = device if device == "cpu" or gpus.num_usable else "no GPU"
    chosen = Need("device", wanted, present, doubt=why_on_cpu(wanted, gpus))
    others = _gpu_needs(config, gpus) if device == "cuda" else _arithmetic_need(config)
    return [chosen, *others]


def _arithmetic_need(config: Config) -> list[Need]:
    dtypes = {"rollout.dtype": config.rollout.dtype, "policy.dtype": config.policy.dtype}
    slow = [name for name, dtype in dtypes.items() if dtype == "bfloat16"]
    if not slow or multiplies_bfloat16():
        return []
    doubt = (
        f"this CPU has no instructions for bfloat16, and is several times slower in it than in "
        f"float32; set {' '.join(f'{name}=float32' for name in slow)}, which takes more memory"
    )
    return [Need("arithmetic of the CPU", "bfloat16", "float32", doubt=doubt)]


def _gpu_needs(config: Config, gpus: Gpus) -> list[Need]:
    placement = plan_policy(config, device="cuda")
    in_all = gpus_in_all(placement, len(config.families))
    wanted = f"{in_all} ({placement.num_gpus} per policy, {placement.policies_per_group} on each)"
    fault = None
    if gpus.num_usable == 0:
        fault = (
            f"cluster.device=cuda: {why_unusable(gpus)}. On purpose on a CPU: cluster.device=cpu "
            "(for tiny models: configs/quickstart.yaml)"
        )
    driver = Need("NVIDIA driver", f"{needed_driver(gpus)} or newer", gpus.driver or "none", fault)
    if fault is not None:
        listed = f"0 (the driver lists {gpus.num_listed})" if gpus.num_listed else "0"
        return [driver, Need("GPUs", wanted, listed, fault)]
    try:
        check_gpus(placement, num_policies=len(config.families), node_gpus=[gpus.num_usable])
    except ValueError as error:
        fault = str(error)
    return [driver, Need("GPUs", wanted, str(gpus.num_usable), fault)]


def _on_each_node(machine: Machine) -> str:
    """``8 GPUs of 79.0 GiB and 1000.0 GiB of memory on a node``, or the least of them."""
    gpus = f"{machine.num_gpus} GPUs of {in_words(machine.gpu_bytes)} and "
    host = f"{in_words(machine.host_bytes)} of memory on a node"
    return host if machine.device == "cpu" else f"{gpus}{host}"


def _find_isolation(config: Config, needs: Checklist, inputs: Inputs) -> Isolation | None:
    """Return what isolates programs, if a question or tool has them; try tasks of reasoning_gym."""
    known = inputs.question_sets
    domains = {question.domain for questions in known for question in questions.questions}
    isolation = None
    if tools_of(config.interaction) or not domains.isdisjoint(SANDBOXED):
        wanted = config.verification.sandbox
        find = partial(settle_isolation, wanted, key="verification.sandbox")
        isolation = needs.find("sandbox for programs", wanted or "as strict as can be", find)
    if "reasoning" in domains and config.verifiers["reasoning"] == "reasoning":
        golds = [
            questions.answers[question.question_id]
            for questions in known
            for question in questions.questions
            if question.domain == "reasoning"
        ]
        right = "that judge their own answer right"
        needs.find("tasks of reasoning_gym", right, partial(try_tasks, golds))
    return isolation


def _find_judge(config: Config, judge: Judge) -> str:
    """Return where the judge is. Raises ValueError where it is not, or is not asked."""
    from comas.engines.judge import find_judge  # imports openai, which takes a second

    asked = {turn.role for turn in silent_discussions(config)[0].turns if turn.generation.author}
    if idle := ", ".join(role for role in judge.roles if role not in asked):
        raise ValueError(
            f"society.judge.roles: nobody is asked for {idle} where interaction.criticism="
            f"{config.interaction.criticism}; leave it out"
        )
    return find_judge(judge, config)


# ---------------------------------------------------------------- memory and disk


def _plan_memory(
    config: Config, needs: Checklist, shapes: Sequence[ModelShape], machine: Machine
) -> tuple[Config, list[str]]:
    """Return the configuration with its sharding and threads settled, and that in words; none where
    none fits."""
    settle = partial(settle_sharding, config, shapes=shapes, machine=machine)
    gpus = f", on GPUs of {machine.gpu_bytes / GIB:.0f} GiB" * (machine.device == "cuda")
    found = needs.find(
        "update",
        "a plan that fits",
        settle,
        show=lambda found: found[1].removeprefix("update: ").partition(" (")[0] + gpus,
    )
    if found is None:
        return config, []
    settled, sharding = found
    if machine.is_imagined:
        *on_gpus, host = memory_needs(settled, shapes, replace(machine, host_bytes=host_bytes()))
        needs += [Need(need.subject, need.needed, "0") for need in on_gpus]
        needs.append(host)
    else:
        needs += memory_needs(settled, shapes, machine)
    settled, threads = settle_threads(settled, shapes=shapes, machine=machine)
    return settled, [sharding] if threads is None else [sharding, threads]


def _look_at_disk(config: Config, needs: Checklist, shapes: dict[str, ModelShape]) -> None:
    known = {name: trained_parameters(shape, config) for name, shape in shapes.items()}
    sizes = {policy: known.get(config.models[policy], 0) for policy in config.trained_policies}
    folder = Path(config.resume or config.saves)
    num_kept = len(list(folder.glob("checkpoints/step_*"))) if config.resume else 0
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    needs.append(disk_need(config, sizes=sizes, free=free, num_kept=num_kept))


def disk_need(config: Config, *, sizes: Mapping[int, int], free: int, num_kept: int = 0) -> Need:
    """Return the disk of the run's folder: the checkpoints that are kept, the best among them, and
    the one that is being written, less ``num_kept`` that a resumed run has already; the trained
    agents' models; records. ``sizes`` are the parameters of each trained policy.

    A checkpoint holds Adam's two moments and the float32 weights, and below ZeRO-3 the model's own
    weights (without ZeRO in float32 these are the float32 weights).

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
    fault = None
    if free < needed:
        fault = (
            f"saves={config.saves}: {in_words(free)} of disk are free, and the trained models, "
            f"{training.keep_checkpoints} checkpoints and the one being written need "
            f"{in_words(needed)}; free some, name another disk with saves=..., or keep fewer "
            "(training.keep_checkpoints)"
        )
    words = f"{in_words(needed)} (a checkpoint: {in_words(checkpoint) if checkpoint else '?'})"
    return Need(DISK, words, in_words(free), fault)
