"""The cold start of a run's models: whether each can be taught, or already was."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from comas.cold_start.demonstrations import in_words, load_demonstrations
from comas.cold_start.teaching import MICRO_BATCH_TOKENS, ColdStart, plan_cold_start
from comas.config.schema import Config
from comas.policy_optimization.logprobs import CHUNK_SIZE
from comas.preflight.checks import Check, Checks
from comas.preflight.inputs import Inputs
from comas.preflight.machine import Machine
from comas.preflight.memory import PROCESS_BYTES, RANK_PROCESS_BYTES, gib, layer_activations
from comas.preflight.model_shape import ModelShape, model_shape
from comas.run.seals import read_inputs


def with_cold_starts(config: Config, checks: Checks, inputs: Inputs, machine: Machine) -> Inputs:
    """Return ``inputs`` with each model's taught copy, or the cold start still to be taught;
    each is a line of ``checks``. A resumed run keeps the models that it began with."""
    before = read_inputs(Path(config.resume)) if config.resume else {}
    models = [config.models[policy] for policy in config.trained_policies]
    names = [name for name in dict.fromkeys(models) if name not in before]
    path = config.society.cold_start
    if path is None or not names:
        return inputs
    find = partial(load_demonstrations, config)
    wanted = "demonstrations"
    demonstrations = checks.find(f"society.cold_start {path}", wanted, find, show=in_words)
    found = dict(inputs.models)
    for name in names:
        model = found.get(name)
        if demonstrations is None or model is None:
            continue
        if model.folder is None:
            checks.append(
                Check(f"cold start of {Path(name).name}", "taught", "taught once it is built")
            )
            continue
        plan = partial(plan_cold_start, config, name, model.location, demonstrations)
        cold_start = checks.find(f"cold start of {Path(name).name}", "taught", plan)
        if cold_start is None:
            continue
        if cold_start.is_done:
            folder = Path(cold_start.folder)
            found[name] = replace(model, location=cold_start.folder, folder=folder)
        else:
            found[name] = replace(model, cold_start=cold_start)
            shape = model_shape(model.location)
            checks.append(_check_memory(name, teaching_bytes(shape, cold_start), machine))
    return replace(inputs, models=found)


def teaching_bytes(shape: ModelShape, cold_start: ColdStart) -> float:
    """Return the memory of a cold start: float32 weights, gradients and Adam's moments; the
    activations of a micro batch (of a longer lesson each layer's input, and those of one layer
    twice); the logits of a chunk, twice, and the output layer's gradient.

    Example: SmolLM2-135M has 0.135e9 parameters, which take 2.2 GB.
    """
    layer = layer_activations(shape)
    if cold_start.longest <= MICRO_BATCH_TOKENS:
        activations = MICRO_BATCH_TOKENS * (shape.num_layers + 1) * layer
    else:
        activations = cold_start.longest * (shape.num_layers * shape.hidden_size + 2 * layer)
    head = shape.vocab_size * (2 * CHUNK_SIZE + shape.hidden_size)
    return 16 * shape.num_parameters + 4 * (activations + head)


def _check_memory(name: str, needed: float, machine: Machine) -> Check:
    is_cpu = machine.device == "cpu"
    of_process = RANK_PROCESS_BYTES if is_cpu else PROCESS_BYTES
    needed, present = needed + of_process, machine.host_bytes if is_cpu else machine.gpu_bytes
    error = None
    if needed > present:
        where = "this machine" if is_cpu else "one GPU"
        error = (
            f"society.cold_start: {name} and AdamW need {gib(needed)} GiB by estimate, and "
            f"{where} has {gib(present)}; a cold start is on one device. Teach the model with "
            "a tool for supervised fine-tuning (TRL, for example), name the result in "
            "society.models, and set society.cold_start to null"
        )
    return Check(
        f"memory to teach {Path(name).name}", f"{gib(needed)} GiB", f"{gib(present)} GiB", error
    )
