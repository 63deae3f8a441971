"""Attention over packed samples: the calls of a GPU's kernel, with stand-ins that have its
signature and compute on a CPU."""

import inspect

import pytest
import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig, LlamaForCausalLM

from comas.engines.policy import attention
from comas.engines.policy.attention import packed_attention
from comas.engines.policy.multiplying import multiply_by_onednn

LENGTHS = [3, 5, 1]
BOUNDS = torch.tensor([0, 3, 8, 9], dtype=torch.int32)
# The last two parts lie behind the first.
KEY_LENGTHS = [3, 8, 4]
KEY_BOUNDS = torch.tensor([0, 3, 11, 15], dtype=torch.int32)
KEY_PLACES = torch.tensor([0, 1, 2, *range(8), 0, 1, 2, 8])
APART = {"cu_seq_lens_k": BOUNDS, "max_length_k": 5}
SHARED = {"cu_seq_lens_k": KEY_BOUNDS, "max_length_k": 8, "key_places": KEY_PLACES}


def of_torch_2_13(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k,
    *, return_aux=None, scale=None, window_size=(-1, -1), enable_gqa=False,
):  # fmt: skip
    assert cu_seq_q is BOUNDS and max_q == 5
    assert (cu_seq_k is BOUNDS and max_k == 5) or (cu_seq_k is KEY_BOUNDS and max_k == 8)
    assert window_size == (-1, 0) and enable_gqa == (query.shape[1] != key.shape[1])
    key_lengths = LENGTHS if cu_seq_k is BOUNDS else KEY_LENGTHS
    parts = zip(query.split(LENGTHS), key.split(key_lengths), value.split(key_lengths), strict=True)
    outputs = []
    for q, k, v in parts:
        # FlashAttention aligns queries and keys at their ends: queries before them are added.
        padded = torch.cat([q.new_zeros(len(k) - len(q), *q.shape[1:]), q])
        output = scaled_dot_product_attention(
            *(states.transpose(0, 1) for states in (padded, k, v)),
            is_causal=True,
            scale=scale,
            enable_gqa=enable_gqa,
        )
        outputs.append(output.transpose(0, 1)[-len(q) :])
    return torch.cat(outputs)


def of_torch_2_11(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k,
    *, return_aux=None, scale=None, window_size=(-1, -1),
):  # fmt: skip
    states = (query, key, value, cu_seq_q, cu_seq_k, max_q, max_k)
    return of_torch_2_13(*states, scale=scale, window_size=window_size)


class OnGpu(torch.Tensor):
    """A CPU tensor that claims to be on a GPU."""

    is_cuda = True


def attend(states, keys):
    output, _ = packed_attention(
        torch.nn.Module(), *states, None, scaling=0.3, cu_seq_lens_q=BOUNDS, max_length_q=5, **keys
    )
    return output.as_subclass(torch.Tensor)


@pytest.mark.parametrize("kernel", [of_torch_2_11, of_torch_2_13])
@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("keys", [APART, SHARED], ids=["apart", "shared"])
def test_a_gpus_kernel_is_asked_rightly_and_gives_equal_numbers(
    monkeypatch, kernel, num_kv_heads, keys
):
    monkeypatch.setattr(attention, "varlen_attn", kernel)
    torch.manual_seed(0)
    states = [
        torch.randn(1, heads, 9, 8, dtype=torch.float64, requires_grad=True)
        for heads in (4, num_kv_heads, num_kv_heads)
    ]
    expected = attend(states, keys)
    found = attend([state.as_subclass(OnGpu) for state in states], keys)
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad((found * weight).sum(), states),
        torch.autograd.grad((expected * weight).sum(), states),
    )


@pytest.mark.parametrize("width", [64, 256])
def test_a_wide_model_multiplies_by_onednn_in_float32_but_attends_by_mkl(monkeypatch, width):
    def recorded(*states, **options):
        output = scaled_dot_product_attention(*states, **options)
        for each in (output, *states[:1]):
            each.register_hook(lambda _: seen.append(torch.get_float32_matmul_precision()))
        seen.append(torch.get_float32_matmul_precision())
        return output

    monkeypatch.setattr(attention, "scaled_dot_product_attention", recorded)
    seen: list[str] = []
    states = [torch.randn(1, 1, 9, 8, requires_grad=True) for _ in range(3)]
    try:
        multiply_by_onednn(
            LlamaForCausalLM(LlamaConfig(vocab_size=8, hidden_size=width, num_hidden_layers=0))
        )
        outside, factor = torch.get_float32_matmul_precision(), torch.rand(256, 256)
        assert (factor @ factor - factor.double() @ factor.double()).abs().max() < 1e-3
        attend(states, APART).sum().backward()
        assert seen == ["highest"] * 9 and torch.get_float32_matmul_precision() == outside
        assert outside == "highest" or (width == 256 and not torch.cpu._is_amx_tile_supported())
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_stand_ins_take_what_the_installed_kernel_takes():
    installed = {
        name: parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in inspect.signature(varlen_attn).parameters.items()
    }
    for kernel in (of_torch_2_11, of_torch_2_13):
        assert inspect.signature(kernel).parameters.items() <= installed.items()
