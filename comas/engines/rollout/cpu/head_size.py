"""Which models vLLM samples from on a CPU."""

HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Those of vLLM's attention on a CPU, which fails at its first prompt with any other."""


def check_head_size(size: int) -> None:
    """Raise ValueError unless attention heads of this size are among ``HEAD_SIZES``."""
    if size not in HEAD_SIZES:
        raise ValueError(
            f"its attention heads have the size {size}, and vLLM on a CPU only knows "
            f"{', '.join(map(str, HEAD_SIZES))}: choose another model, or run this one on a GPU"
        )
