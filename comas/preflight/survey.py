"""What a run needs beside what is there, all of it at once; nothing is built or started."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from comas import quickstart
from comas.config.schema import Config
from comas.engines.cluster.nodes import cluster_address
from comas.engines.cluster.placement import gpus_in_all, plan_policy
from comas.preflight import checks
from comas.preflight.cluster import cluster_machine
from comas.preflight.inputs import Inputs, find_inputs, held_out_need, shapes_of
from comas.preflight.lengths import length_needs
from comas.preflight.machine import (
    Machine,
    choose_device,
    describe_machine,
    free_bytes,
    host_bytes,
    imagined_machine,
    read_gpus,
    settle_isolation,
)
from comas.preflight.memory import (
    GIB,
    ModelShape,
    in_words,
    memory_needs,
    settle_sharding,
    trained_parameters,
)
from comas.preflight.needs import Checklist, Need, PreflightError, faults_of
from comas.preflight.plugins import plugin_needs, prompt_needs, user_sources
from comas.run.prepared import Prepared, Sizes
from comas.run.seals import look_for_key
from comas.types import Device
from comas.verification.reasoning_gym import try_tasks
from comas.verification.sandbox import Isolation
from comas.verification.verifiers import SANDBOXED

SHARED_MEMORY = Path("/dev/shm")


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
    sharding: str | None
    """How the update fits into memory, in words."""

    @property
    def sizes(self) -> Sizes | None:
        """Of the run, once it is known how many questions there are."""
        return None if self.inputs.train is None else self.inputs.train.sizes


def prepare(config: Config) -> Prepared:
    """Check machine, models and questions, all of them before anything is built; then build the
    quick-start society if it is named and not there.

    Raises:
        PreflightError: everything that is missing, broken or too little, at once.
    """
    found = _faultless(config)
    if not found.inputs.is_built:
        quickstart.build_society(Path(config.saves), seed=config.seed)
        found = _faultless(config)
    models, train, validation = found.inputs.models, found.inputs.train, found.inputs.validation
    assert train is not None and train.questions is not None and train.sizes is not None
    assert validation is not None and validation.questions is not None
    assert found.sharding is not None
    probe = found.inputs.probe
    return Prepared(
        config=found.config,
        sharding=found.sharding,
        models=[models[name].location for name in config.models],
        train=train.questions,
        validation=validation.questions,
        probe=() if probe is None else probe.probe,
        device=found.device,
        isolation=found.isolation,
        sizes=train.sizes,
        locations=found.inputs.locations(config),
        sources=user_sources(config),
        doubts=[need.doubt for need in found.needs if need.doubt is not None],
    )


def _faultless(config: Config) -> Findings:
    found = survey_run(config)
    if faults_of(found.needs):
        raise PreflightError(found.needs)
    return found


def survey_run(config: Config) -> Findings:
    """Look at everything that a run of ``config`` needs."""
    needs = Checklist()
    machine = _find_machine(config, needs)
    device = machine.device
    if device == "cuda" and not machine.is_imagined:
        needs += checks.allocator_needs(config)
    inputs = find_inputs(config, needs, device=device)
    train = None if inputs.train is None else inputs.train.questions
    folders = {name: model.folder for name, model in inputs.models.items() if model.folder}
    questions = () if train is None else train.questions
    needs += length_needs(config, folders=folders, questions=questions)
    needs += held_out_need(config, inputs)
    needs += [*plugin_needs(config, train), *prompt_needs(config, train)]
    isolation = _find_isolation(config, needs, inputs)
    shapes = shapes_of(config, inputs, device=device)
    settled, sharding = config, None
    if shapes.keys() >= {*config.models}:  # one that is unknown has a fault of its own
        every = [shapes[name] for name in config.models]
        settled, sharding = _plan_memory(config, needs, every, machine)
    _look_at_disk(settled, needs, shapes)
    if cluster_address() is None:
        needs.append(checks.store_need(config, free=shutil.disk_usage(SHARED_MEMORY).free))
    return Findings(needs, settled, device, inputs, isolation, sharding)


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
    device = choose_device(config.cluster.device, gpus)
    needs += checks.device_needs(config, device, gpus)
    if device == "cuda" and gpus.num_usable == 0:
        return imagined_machine(in_all)
    return describe_machine(device)


def _on_each_node(machine: Machine) -> str:
    """``8 GPUs of 79.0 GiB and 1000.0 GiB of memory on a node``, or the least of them."""
    gpus = f"{machine.num_gpus} GPUs of {in_words(machine.gpu_bytes)} and "
    host = f"{in_words(machine.host_bytes)} of memory on a node"
    return host if machine.device == "cpu" else f"{gpus}{host}"


def _find_isolation(config: Config, needs: Checklist, inputs: Inputs) -> Isolation | None:
    """Return what isolates programs, if any question has them; try tasks of reasoning_gym."""
    known = inputs.question_sets
    domains = {question.domain for questions in known for question in questions.questions}
    isolation = None
    if not domains.isdisjoint(SANDBOXED):
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
        wanted = "that judge their own answer right"
        needs.find("tasks of reasoning_gym", wanted, partial(try_tasks, golds))
    return isolation


def _plan_memory(
    config: Config, needs: Checklist, shapes: Sequence[ModelShape], machine: Machine
) -> tuple[Config, str | None]:
    """Return the configuration with its sharding settled, and that in words; None: none fits."""
    settle = partial(settle_sharding, config, shapes=shapes, machine=machine)

    def show(found: tuple[Config, str]) -> str:
        policy = found[0].policy
        adam = ", Adam in host memory" if policy.adam_offload else ""
        gpus = f", on GPUs of {machine.gpu_bytes / GIB:.0f} GiB" * (machine.device == "cuda")
        return f"ZeRO-{policy.zero_stage}{adam}{gpus}"

    found = needs.find("update", "a plan that fits", settle, show=show)
    if found is None:
        return config, None
    settled, sharding = found
    if machine.is_imagined:
        *on_gpus, host = memory_needs(settled, shapes, replace(machine, host_bytes=host_bytes()))
        needs += [Need(need.subject, need.needed, "0") for need in on_gpus]
        needs.append(host)
    else:
        needs += memory_needs(settled, shapes, machine)
    return settled, sharding


def _look_at_disk(config: Config, needs: Checklist, shapes: dict[str, ModelShape]) -> None:
    """Look at room for the run's folder, and at the key that its checkpoints are sealed with."""
    known = {name: trained_parameters(shape, config) for name, shape in shapes.items()}
    sizes = [known.get(config.models[policy]) for policy in config.trained_policies]
    folder = Path(config.resume or config.saves)
    num_kept = len(list(folder.glob("checkpoints/step_*"))) if config.resume else 0
    try:
        free = free_bytes(folder)
    except OSError as error:
        needs.append(Need(f"disk at {folder}", "a folder to write to", "none", fault=str(error)))
    else:
        needs.append(checks.disk_need(config, sizes=sizes, free=free, num_kept=num_kept))
    needs.find("key of checkpoints", "to read or to make", look_for_key)
