"""Attention over packed samples: what a GPU's kernel is asked for, with stand-ins that check it as
PyTorch's own does and compute it on a CPU."""

import inspect

import pytest
import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

from comas.engines.policy import attention
from comas.engines.policy.attention import packed_attention

LENGTHS = [3, 5, 1]
BOUNDS = torch.tensor([0, 3, 8, 9], dtype=torch.int32)


def of_torch_2_13(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k,
    *, return_aux=None, scale=None, window_size=(-1, -1), enable_gqa=False,
):  # fmt: skip
    assert cu_seq_q is cu_seq_k is BOUNDS and max_q == max_k == max(LENGTHS)
    assert window_size == (-1, 0) and enable_gqa == (query.shape[1] != key.shape[1])
    samples = zip(*(states.split(LENGTHS) for states in (query, key, value)), strict=True)
    outputs = [
        scaled_dot_product_attention(
            *(states.transpose(0, 1) for states in sample),
            is_causal=True,
            scale=scale,
            enable_gqa=enable_gqa,
        ).transpose(0, 1)
        for sample in samples
    ]
    return torch.cat(outputs)


def of_torch_2_11(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k,
    *, return_aux=None, scale=None, window_size=(-1, -1),
):  # fmt: skip
    states = (query, key, value, cu_seq_q, cu_seq_k, max_q, max_k)
    return of_torch_2_13(*states, scale=scale, window_size=window_size)


class OnGpu(torch.Tensor):
    """A tensor of a CPU that says that it is on a GPU."""

    is_cuda = True


def attend(states):
    module = torch.nn.Module()
    output, _ = packed_attention(
        module, *states, None, scaling=0.3, cu_seq_lens_q=BOUNDS, max_length_q=5
    )
    return output.as_subclass(torch.Tensor)


@pytest.mark.parametrize("kernel", [of_torch_2_11, of_torch_2_13])
@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
def test_a_gpus_kernel_is_asked_rightly_and_gives_a_cpus_numbers(monkeypatch, kernel, num_kv_heads):
    monkeypatch.setattr(attention, "varlen_attn", kernel)
    torch.manual_seed(0)
    states = [
        torch.randn(1, heads, 9, 8, dtype=torch.float64, requires_grad=True)
        for heads in (4, num_kv_heads, num_kv_heads)
    ]
    expected = attend(states)
    found = attend([state.as_subclass(OnGpu) for state in states])
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad((found * weight).sum(), states),
        torch.autograd.grad((expected * weight).sum(), states),
    )


def test_the_stand_ins_take_what_the_installed_kernel_takes():
    installed = inspect.signature(varlen_attn).parameters
    for kernel in (of_torch_2_11, of_torch_2_13):
        assert (
            inspect.signature(kernel).parameters.items()
            <= {
                name: parameter.replace(annotation=inspect.Parameter.empty)
                for name, parameter in installed.items()
            }.items()
        )
