"""Set-up of vLLM's worker on a CPU before it loads a model, in whichever process it is.

vLLM imports this module there, because ``CpuWorker`` is named as the extension of its worker.
"""

from vllm.distributed.weight_transfer import WeightTransferEngineFactory

from comas.engines.rollout.cpu.amx import AmxWorker
from comas.engines.rollout.cpu.lora import use_dense_products

WeightTransferEngineFactory.register_engine(
    "shared_memory", "comas.engines.rollout.cpu.weight_receiver", "SharedMemoryWeightTransferEngine"
)
use_dense_products()


class CpuWorker(AmxWorker):
    """Adds nothing to vLLM's worker but the import of this module."""
