"""Read the metadata and weights of GGUF files."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, ReaderTensor

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

Metadata = Mapping[str, Any]

_ROPE = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
"""``ARCHITECTURE.rope.scaling.`` in the metadata -> ``rope_parameters`` in a config."""
_FREQUENCIES = "rope_freqs.weight"
"""The divisor of each RoPE frequency in Llama 3's scaling."""
_LLAMA_3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


class _Reader(GGUFReader):  # type: ignore[misc]  # gguf is not typed
    """A GGUFReader that reads the long arrays of a vocabulary seconds faster."""

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[Any], list[int], list[GGUFValueType]]:
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind, length = struct.unpack_from("<IQ", self.data.data, orig_offs)
        types, start = [GGUFValueType.ARRAY, GGUFValueType(kind)], orig_offs + 12
        if kind != GGUFValueType.STRING:
            values = self._get(start, self.gguf_scalar_to_np[types[1]], length)
            return 12 + values.nbytes, [values], [0], types
        strings, end = [], start
        for _ in range(length):
            (size,) = struct.unpack_from("<Q", self.data.data, end)
            strings.append(self.data[end + 8 : end + 8 + size])
            end += 8 + size
        return end - orig_offs, strings, [*range(length)], types


def read_shards(shards: Sequence[Path]) -> tuple[Metadata, dict[str, ReaderTensor]]:
    """Return the metadata of a GGUF model, and its tensors by name.

    Raises ValueError if shards are missing.
    """
    readers = [_Reader(path) for path in shards]
    metadata = {key: field.contents() for key, field in readers[0].fields.items()}
    tensors = {tensor.name: tensor for reader in readers for tensor in reader.tensors}
    num_shards = metadata.get("split.count", 1)
    num_tensors = metadata.get("split.tensors.count", len(tensors))
    if (len(shards), len(tensors)) != (num_shards, num_tensors):
        raise ValueError(
            f"by its metadata it is one of {num_shards} shards with {num_tensors} tensors, but "
            f"{len(shards)} with {len(tensors)} are here; name all shards as they were, "
            "NAME-00001-of-00002.gguf"
        )
    return metadata, tensors


def read_model(
    metadata: Metadata, tensors: Mapping[str, ReaderTensor], scratch: Path
) -> "PreTrainedModel":
    """Return the model in bfloat16, as transformers reads it. ``scratch`` is a folder for a
    temporary file of the tensors' size.

    Raises ValueError if the tensors do not match the model, or its RoPE scaling is unknown.
    """
    import torch
    from transformers import AutoModelForCausalLM

    weights = {name: tensors[name] for name in tensors if name != _FREQUENCIES}
    plain = scratch / "plain.gguf"
    _write_plain(plain, metadata, weights)
    read, found = AutoModelForCausalLM.from_pretrained(
        scratch, gguf_file=plain.name, dtype=torch.bfloat16, output_loading_info=True
    )
    plain.unlink()
    if missing := sorted(found["missing_keys"]):
        raise ValueError(
            f"it lacks {len(missing)} weights of the model, first {missing[0]!r}: get it again"
        )
    held = sum(int(tensor.n_elements) for tensor in weights.values())
    if held != read.num_parameters():
        raise ValueError(
            f"its tensors hold {held} numbers, but transformers knows a place in a "
            f"{read.config.model_type} for {read.num_parameters()} only; get the model in Hugging "
            "Face format"
        )
    config = read.config
    _carry_rope_over(metadata, config, tensors.get(_FREQUENCIES))
    if hasattr(config, "quantization_config"):  # transformers 5.17 would refuse to save it
        del config.quantization_config
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    ends = (metadata.get(f"tokenizer.ggml.{end}_token_id") for end in ("eos", "eot"))
    model.generation_config.eos_token_id = [*{end: None for end in ends if end is not None}]
    return model


def _write_plain(path: Path, metadata: Metadata, tensors: Mapping[str, ReaderTensor]) -> None:
    """Merge all shards into one GGUF file, without RoPE's scaling, which transformers ignores, and
    the vocabulary, which it takes minutes to parse."""
    architecture = metadata["general.architecture"]
    writer = GGUFWriter(path, architecture)
    left_out = ("GGUF.", "split.", "general.", f"{architecture}.rope.scal")
    for key, value in metadata.items():
        is_vocabulary = key.startswith("tokenizer.") and isinstance(value, list)
        if not (is_vocabulary or key.startswith(left_out)):
            writer.add_key_value(key, value, GGUFValueType.get_type(value))
    if f"{architecture}.vocab_size" not in metadata:
        writer.add_vocab_size(len(metadata["tokenizer.ggml.tokens"]))
    for tensor in tensors.values():
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _carry_rope_over(
    metadata: Metadata, config: "PreTrainedConfig", frequencies: ReaderTensor | None
) -> None:
    """Copy RoPE's scaling, which transformers does not read, to ``config``.

    Raises ValueError if its kind is unknown.
    """
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = f"{metadata['general.architecture']}.rope."
    prefix = f"{rope}scaling."
    said = {key.removeprefix(prefix): metadata[key] for key in metadata if key.startswith(prefix)}
    said.pop("finetuned", None)
    kind = said.pop("type", "linear")  # the default of llama.cpp
    said.setdefault("factor", metadata.get(f"{rope}scale_linear", 1.0))
    is_scaled = kind != "none" and (kind != "linear" or said["factor"] not in (0.0, 1.0))
    every = config.rope_parameters
    parameters = every.get("full_attention", every)  # Gemma's windows are not scaled
    if frequencies is not None:
        parameters |= {**_LLAMA_3, "factor": float(frequencies.data.max())}
        (found, _), factors = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu"), frequencies.data
        plain = parameters["rope_theta"] ** -(np.arange(len(factors)) / len(factors))
        is_known = len(found) == len(factors) and np.allclose(plain / factors, found, 1e-4, 0)
        kind, is_known = "rope_freqs.weight", is_known and not is_scaled
    elif is_scaled:
        parameters |= {"rope_type": kind} | {_ROPE.get(key, key): said[key] for key in said}
        is_known = kind in ("linear", "yarn") and said.keys() <= _ROPE.keys()
    else:
        return
    if not is_known:
        raise ValueError(
            f"its RoPE is scaled by {kind} {said}; only linear, yarn and Llama 3's scaling can be "
            f"carried over, with {', '.join(_ROPE)}; get the model in Hugging Face format"
        )
