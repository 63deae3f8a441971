"""Set-up of vLLM's worker on a CPU, which imports this module to find its extension."""

from vllm.distributed.weight_transfer import WeightTransferEngineFactory

from comas.engines.rollout.cpu.amx import AmxWorker
from comas.engines.rollout.cpu.lora import use_dense_products

WeightTransferEngineFactory.register_engine(
    "shared_memory", "comas.engines.rollout.cpu.weight_receiver", "SharedMemoryWeightTransferEngine"
)
use_dense_products()


class CpuWorker(AmxWorker):
    """An empty extension of vLLM's worker, which makes it import this module."""
