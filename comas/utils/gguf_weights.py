"""Read the metadata and weights of GGUF files."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gguf import GGUFReader, GGUFValueType, GGUFWriter, ReaderTensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Metadata = Mapping[str, Any]

_FREQUENCIES = "rope_freqs.weight"
"""The divisor of each RoPE frequency, by which Llama 3.1 is scaled."""


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


def read_file(path: Path) -> tuple[Metadata, dict[str, ReaderTensor]]:
    """Return the metadata of a GGUF model, and its tensors by name."""
    reader = _Reader(path)
    metadata = {key: field.contents() for key, field in reader.fields.items()}
    return metadata, {tensor.name: tensor for tensor in reader.tensors}


def read_model(
    metadata: Metadata, tensors: Mapping[str, ReaderTensor], scratch: Path
) -> "PreTrainedModel":
    """Return the model in bfloat16, as transformers reads it. ``scratch`` is a folder for a
    temporary file of the tensors' size.

    Raises ValueError if the tensors do not match the model, or its RoPE is scaled.
    """
    import torch
    from transformers import AutoModelForCausalLM

    _check_rope(metadata, tensors)
    plain = scratch / "plain.gguf"
    _write_plain(plain, metadata, tensors)
    read, found = AutoModelForCausalLM.from_pretrained(
        scratch, gguf_file=plain.name, dtype=torch.bfloat16, output_loading_info=True
    )
    plain.unlink()
    if missing := sorted(found["missing_keys"]):
        raise ValueError(
            f"it lacks {len(missing)} weights of the model, first {missing[0]!r}: get it again"
        )
    held = sum(int(tensor.n_elements) for tensor in tensors.values())
    if held != read.num_parameters():
        raise ValueError(
            f"its tensors hold {held} numbers, but transformers reads only "
            f"{read.num_parameters()} of a {read.config.model_type}; get the model in Hugging Face "
            "format"
        )
    if hasattr(read.config, "quantization_config"):  # transformers 5.17 would refuse to save it
        del read.config.quantization_config
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(read.config, dtype=torch.bfloat16)
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    ends = (metadata.get(f"tokenizer.ggml.{end}_token_id") for end in ("eos", "eot"))
    model.generation_config.eos_token_id = [*{end: None for end in ends if end is not None}]
    return model


def _write_plain(path: Path, metadata: Metadata, tensors: Mapping[str, ReaderTensor]) -> None:
    """Write the model again without its vocabulary, which transformers takes minutes to parse."""
    architecture = metadata["general.architecture"]
    writer = GGUFWriter(path, architecture)
    left_out = ("GGUF.", "split.", "general.")
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


def _check_rope(metadata: Metadata, tensors: Mapping[str, ReaderTensor]) -> None:
    """Raise ValueError if RoPE is scaled, which transformers does not read from GGUF files."""
    rope = f"{metadata['general.architecture']}.rope."
    factor = metadata.get(f"{rope}scaling.factor", metadata.get(f"{rope}scale_linear", 1.0))
    kind = metadata.get(f"{rope}scaling.type", "linear")  # the default of llama.cpp
    if _FREQUENCIES in tensors:
        kind = _FREQUENCIES
    elif kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return
    raise ValueError(f"its RoPE is scaled ({kind}); get the model in Hugging Face format")
