"""What a run needs beside what is there, all of it at once; nothing is built or started."""

import shutil
from collections.abc import Collection
from functools import partial
from pathlib import Path

from comas import quickstart
from comas.config.plugins import blaming_plugins
from comas.config.schema import Config
from comas.data import QuestionSet, fixed_subset, load_questions
from comas.data.probe import ProbeItem, load_probe
from comas.engines.cluster.nodes import cluster_address
from comas.engines.cluster.placement import gpus_in_all, plan_policy
from comas.preflight import checks
from comas.preflight.cluster import cluster_machine
from comas.preflight.engine_options import option_needs
from comas.preflight.groups import group_needs
from comas.preflight.lengths import length_needs
from comas.preflight.locations import (
    check_architecture,
    check_model,
    check_shards,
    held_out_rules,
    locate,
    society_folder,
    training_rules,
)
from comas.preflight.machine import (
    Machine,
    choose_device,
    describe_machine,
    free_bytes,
    free_ports,
    host_bytes,
    imagined_machine,
    open_files_limit,
    read_gpus,
    settle_isolation,
)
from comas.preflight.memory import (
    GIB,
    adapter_parameters,
    in_words,
    model_shape,
    num_parameters,
)
from comas.preflight.needs import Checklist, Need, PreflightError, faults_of
from comas.preflight.plugins import plugin_needs, prompt_needs, user_sources
from comas.preflight.sharding import settle_sharding
from comas.preflight.sizes import derive_sizes
from comas.quickstart import QUICKSTART_PREFIX
from comas.quickstart.build import (
    ARCHITECTURES,
    NUM_TRAIN_PER_DOMAIN,
    NUM_VALIDATION_PER_DOMAIN,
)
from comas.quickstart.probe import NUM_PROBE_ITEMS
from comas.run.checkpoints import look_for_key
from comas.run.directory import read_inputs
from comas.run.prepared import Prepared, Sizes
from comas.types import DOMAINS, Device
from comas.utils.model_folder import description_of, is_here
from comas.verification.reasoning_gym import try_tasks
from comas.verification.sandbox import Isolation
from comas.verification.verifiers import SANDBOXED

SHARED_MEMORY = Path("/dev/shm")
EMBEDDED_QUESTIONS = {
    "quickstart/train.jsonl": NUM_TRAIN_PER_DOMAIN * len(DOMAINS),
    "quickstart/validation.jsonl": NUM_VALIDATION_PER_DOMAIN * len(DOMAINS),
}
EMBEDDED_PROBE = {"quickstart/probe.jsonl": NUM_PROBE_ITEMS}
EMBEDDED_MODELS = [f"quickstart/models/{architecture}" for architecture in ARCHITECTURES]
EMBEDDED_PARAMETERS = 500_000
"""Each has fewer."""


class Survey:
    """A configuration beside its machine and files.

    A resumed run continues with the models and questions that it began with. What could not be
    found out is None: one of ``needs`` says why, or it is still to be built.
    """

    def __init__(self, config: Config) -> None:
        self.needs = Checklist()
        """The lines of the table."""
        self.config = config
        """With what it leaves to the machine decided, once that can be."""
        self.locations: dict[str, str] = {}
        """Where each name of the configuration leads (see ``locate``)."""
        self.train: QuestionSet | None = None
        self.validation: QuestionSet | None = None
        self.probe: list[ProbeItem] = []
        self.isolation: Isolation | None = None
        """Isolation of model-written programs; None where no question asks for one."""
        self.sizes: Sizes | None = None
        self.sharding: str | None = None
        """How the update fits into memory, in words."""
        self.is_built = True
        """Whether nothing that is embedded is still to be built."""
        self._folders: dict[str, Path | None] = {}
        """Folder of each model that can be used; None: still to be built."""
        self._num_parameters: dict[str, int] = {}
        self._num_trained: dict[str, int] = {}
        """Parameters of a policy that are trained: those of its model, or of its adapter."""
        self._cluster = cluster_address(config.cluster)
        self.device, self._machine = self._look_at_device()
        if self.device == "cuda" and not self._is_imagined:
            self.needs += checks.gpu_kind_needs(config, self._machine)
        self._look_at_inputs()
        self._look_at_questions()
        self._look_at_discussions()
        self.needs += [*plugin_needs(config, self.train), *prompt_needs(config, self.train)]
        self._look_at_sandbox()
        self._look_at_memory()
        self.needs += option_needs(self.config, device=self.device)
        self._look_at_disk()
        self._look_at_ray()

    @property
    def models(self) -> list[str]:
        """Folder or hub name of the base model of each policy."""
        return [self.locations[name] for name in self.config.models]

    # ------------------------------------------------------------ what the machine has

    def _look_at_device(self) -> tuple[Device, Machine]:
        """The device, and the machine to plan for: this one, the nodes of a Ray cluster, or one
        like the paper's where there are no GPUs to plan for."""
        config, gpus = self.config, read_gpus()
        needed = gpus_in_all(plan_policy(config, device="cuda"), len(config.families))
        device = choose_device(config.cluster.device, gpus)
        if self._cluster is not None:
            find = partial(cluster_machine, config, self._cluster)
            machine = self.needs.find(f"Ray at {self._cluster}", "", find, show=_on_each_node)
            self._is_imagined = machine is None
            machine = machine or imagined_machine(needed)
            return machine.device, machine
        self.needs += checks.device_needs(config, device, gpus)
        self._is_imagined = device == "cuda" and gpus.num_usable == 0
        return device, imagined_machine(needed) if self._is_imagined else describe_machine(device)

    # ------------------------------------------------------------ what the configuration names

    def _look_at_inputs(self) -> None:
        data, find = self.config.data, self.needs.find
        for name in dict.fromkeys(self.config.models):
            find(f"model {name}", "complete", partial(self._model, name))
        wanted = f"{self.config.rollout.batch_size} questions or more"
        find(f"data.train {data.train}", wanted, self._training)
        asked = self.config.validation.num_questions
        wanted = "questions" if asked is None else f"{asked} questions or more"
        find(f"data.validation {data.validation}", wanted, self._held_out)
        if data.probe is not None:
            find(
                f"data.probe {data.probe}", "planted solutions", partial(self._planted, data.probe)
            )

    def _locate(self, name: str, *, embedded: Collection[str]) -> str | None:
        """Where a name leads; None if that is still to be built."""
        saves, seed = Path(self.config.saves), self.config.seed
        before = read_inputs(Path(self.config.resume)) if self.config.resume else {}
        location = locate([name], saves=saves, seed=seed, found_before=before, builds=False)[name]
        self.locations[name] = location
        society = society_folder(saves, seed=seed)
        if not name.startswith(QUICKSTART_PREFIX) or society.is_dir() or Path(location).exists():
            return location
        if name not in embedded:
            raise ValueError(f"{name} is not embedded; choose one of {', '.join(embedded)}")
        self.is_built = False
        return None

    def _model(self, name: str) -> str:
        config = self.config
        location = self._locate(name, embedded=EMBEDDED_MODELS)
        if location is None:
            self._folders[name] = None
            self._num_parameters[name] = self._num_trained[name] = EMBEDDED_PARAMETERS
            return "built at the start"
        is_embedded = name.startswith(QUICKSTART_PREFIX)
        of_policies = zip(config.models, config.chat_template_kwargs, strict=True)
        thinking = check_model(
            location,
            is_embedded=is_embedded,
            rollout=config.rollout,
            template_kwargs=[kwargs for model, kwargs in of_policies if model == name],
        )
        if not is_embedded:
            trained = {config.models[policy] for policy in config.trained_policies}
            check_architecture(location, is_trained=name in trained, device=self.device)
        check_shards(location, config.rollout.tensor_parallel)
        self._folders[name] = description_of(location)
        self._num_parameters[name] = num_parameters(location)
        self._num_trained[name] = self._num_parameters[name]
        if config.policy.lora.rank is not None:
            shape = model_shape(str(description_of(location)))
            self._num_trained[name] = adapter_parameters(shape, config)
        thinks = "" if thinking is None else f", thinks from {thinking.start} to {thinking.end}"
        return ("here" if is_here(location) else "downloaded at the start") + thinks

    def _training(self) -> int:
        name = self.config.data.train
        location = self._locate(name, embedded=EMBEDDED_QUESTIONS)
        if location is None:
            number = EMBEDDED_QUESTIONS[name]
        else:
            self.train = load_questions(location, training_rules(self.config))
            number = len(self.train.questions)
        self.sizes = derive_sizes(self.config, num_questions=number)
        return number

    def _held_out(self) -> int:
        name = self.config.data.validation
        location = self._locate(name, embedded=EMBEDDED_QUESTIONS)
        if location is None:
            return EMBEDDED_QUESTIONS[name]
        held_out = load_questions(location, held_out_rules(self.config))
        asked = fixed_subset(held_out.questions, self.config.validation.num_questions)
        self.validation = QuestionSet(tuple(asked), held_out.answers)
        return len(held_out.questions)

    def _planted(self, name: str) -> int:
        location = self._locate(name, embedded=EMBEDDED_PROBE)
        if location is None:
            return EMBEDDED_PROBE[name]
        self.probe = load_probe(Path(location))
        return len(self.probe)

    def _look_at_questions(self) -> None:
        questions = () if self.train is None else self.train.questions
        self.needs += length_needs(self.config, folders=self._folders, questions=questions)
        if self.validation is not None:
            self.needs.append(checks.held_out_need(questions, self.validation.questions))
        elif self.config.data.train == self.config.data.validation and self.sizes is not None:
            self.needs.append(
                checks.shared_need(self.sizes.num_questions, self.sizes.num_questions)
            )

    @blaming_plugins()
    def _look_at_discussions(self) -> None:
        self.needs += group_needs(self.config)

    # ------------------------------------------------------------ what that needs of the machine

    def _look_at_sandbox(self) -> None:
        known = [questions for questions in (self.train, self.validation) if questions is not None]
        domains = {question.domain for of_file in known for question in of_file.questions}
        if not domains.isdisjoint(SANDBOXED):
            wanted = self.config.verification.sandbox
            self.isolation = self.needs.find(
                "sandbox for programs",
                wanted or "as strict as can be",
                lambda: settle_isolation(wanted, key="verification.sandbox"),
            )
        if "reasoning" in domains and self.config.verification.reasoning == "reasoning":
            golds = [
                of_file.answers[question.question_id]
                for of_file in known
                for question in of_file.questions
                if question.domain == "reasoning"
            ]
            find = partial(try_tasks, golds)
            self.needs.find("tasks of reasoning_gym", "that judge their own answer right", find)

    def _look_at_memory(self) -> None:
        if len(self._num_parameters) < len(set(self.config.models)):
            return  # a model that cannot be used has a fault of its own
        if self.device == "cpu" and self._cluster is None:
            need = checks.cpu_memory_need(
                self.config,
                sizes=[self._num_parameters[name] for name in self.config.models],
                trained=[self._num_trained[name] for name in self.config.models],
                host_bytes=self._machine.host_bytes,
            )
            self.needs.append(need)
        if not self.is_built:
            return
        self.needs.find("update", "a plan that fits", self._settle)
        if self.device == "cuda" and self.sharding is not None:
            shapes = [model_shape(model) for model in self.models]
            here = host_bytes() if self._is_imagined else self._machine.host_bytes
            *of_gpus, of_host = checks.gpu_memory_needs(
                self.config, shapes, self._machine, host_bytes=here
            )
            if self._is_imagined:
                of_gpus = [Need(need.subject, need.needed, "0") for need in of_gpus]
            self.needs += [*of_gpus, of_host]

    def _settle(self) -> str:
        machine = self._machine
        trained = [self.models[policy] for policy in self.config.trained_policies]
        settled, self.sharding = settle_sharding(self.config, models=trained, machine=machine)
        self.config = settled
        adam = ", Adam in host memory" if settled.policy.adam_offload else ""
        on = "" if machine.device == "cpu" else f", on GPUs of {machine.gpu_bytes / GIB:.0f} GiB"
        return f"ZeRO-{settled.policy.zero_stage}{adam}{on}"

    def _look_at_disk(self) -> None:
        config = self.config
        sizes = [self._num_trained.get(config.models[p]) for p in config.trained_policies]
        folder = Path(config.resume or config.saves)
        num_kept = len(list(folder.glob("checkpoints/step_*"))) if config.resume else 0
        try:
            free = free_bytes(folder)
        except OSError as error:
            self.needs.append(
                Need(f"disk at {folder}", "a folder to write to", "none", fault=str(error))
            )
        else:
            self.needs.append(checks.disk_need(config, sizes=sizes, free=free, num_kept=num_kept))
        self.needs.find("key of checkpoints", "to read or to make", look_for_key)

    def _look_at_ray(self) -> None:
        if self._cluster is not None:
            return
        wanted = checks.num_ports(self.config)
        self.needs += [
            checks.files_need(self.config, limit=open_files_limit()),
            checks.store_need(self.config, free=shutil.disk_usage(SHARED_MEMORY).free),
            checks.port_need(wanted, free=free_ports(wanted)),
        ]


def _on_each_node(machine: Machine) -> str:
    """``8 GPUs of 79.0 GiB and 1000.0 GiB of memory on each node``, or the least of them."""
    gpus = (
        ""
        if machine.device == "cpu"
        else f"{machine.num_gpus} GPUs of {in_words(machine.gpu_bytes)} and "
    )
    return f"{gpus}{in_words(machine.host_bytes)} of memory on a node"


def prepare(config: Config) -> Prepared:
    """Check machine, models and questions, all of them before anything is built; then build the
    quick-start society if it is named and not there.

    Raises:
        PreflightError: everything that is missing, broken or too little, at once.
    """
    found = _checked(config)
    if not found.is_built:
        quickstart.build_society(Path(config.saves), seed=config.seed)
        found = _checked(config)
    assert found.train is not None and found.validation is not None
    assert found.sizes is not None and found.sharding is not None
    return Prepared(
        config=found.config,
        sharding=found.sharding,
        models=found.models,
        train=found.train,
        validation=found.validation,
        probe=found.probe,
        device=found.device,
        isolation=found.isolation,
        sizes=found.sizes,
        locations=found.locations,
        sources=user_sources(config),
        doubts=[need.doubt for need in found.needs if need.doubt is not None],
    )


def _checked(config: Config) -> Survey:
    found = Survey(config)
    if faults_of(found.needs):
        raise PreflightError(found.needs)
    return found
