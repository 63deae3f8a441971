"""Tables of cases: a test is run with every row."""

from typing import Any

import pytest


def cases(names: str, *rows: Any, **options: Any) -> pytest.MarkDecorator:
    """Parametrise a test with ``rows``, as ``pytest.mark.parametrize`` does."""
    return pytest.mark.parametrize(names, rows, **options)
