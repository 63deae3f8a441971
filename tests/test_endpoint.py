"""An endpoint of others: asked with its key, and through the proxy of the environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from runner_process import run
from scripted_server import ScriptedServer

from evaluation.models import find_remote


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(lambda body: "71") as server:
        yield server


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ~/.netrc that knows every machine, and a key."""
    file = tmp_path / "netrc"
    file.write_text("default login somebody password else\n")
    monkeypatch.setenv("NETRC", str(file))
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_an_endpoint_is_asked_with_its_key_through_the_proxy_whatever_netrc_says(
    netrc, server, monkeypatch, tmp_path
):
    proxy = server.base_url.removesuffix("/v1")
    monkeypatch.setenv("http_proxy", proxy.replace("://", "://me:pass@"))
    [remote] = find_remote("http://models.invalid/v1", model=None).models
    inference = run(remote.endpoint.base_url, tmp_path / "answers", 1, num_retries=0, api_key="key")
    assert inference.num_done == 1
    told = [
        (headers["Host"], headers["Authorization"], headers["Proxy-Authorization"])
        for headers in server.headers
    ]
    assert told == [("models.invalid", "Bearer key", "Basic bWU6cGFzcw==")] * 2


def test_an_endpoint_on_this_machine_is_asked_without_a_proxy(netrc, server, monkeypatch, tmp_path):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    [remote] = find_remote(server.base_url, model=None).models
    assert run(remote.endpoint.base_url, tmp_path / "answers", 1, num_retries=0).num_done == 1
    assert remote.endpoint.model == "scripted"
