"""The Ray that a run starts: closed to others, and gone afterwards with all its processes."""

import os
import sys
from pathlib import Path

import psutil
import pytest
import ray
from programs import run_to_end
from tables import case_file

from comas.engines.cluster.launch import MARK, Launch
from comas.preflight.configuration import load_config
from comas.utils.processes import is_alive
from comas.utils.temporary import temporary_folder

VISITOR = case_file("launch")["VISITOR"]

TERMINATED_WHILE_LEAVING = case_file("launch")["TERMINATED_WHILE_LEAVING"]


@pytest.mark.stack
def test_workers_start_from_a_path_with_spaces_and_a_sigterm_as_they_end_is_handled(tmp_path):
    environment = Path(sys.prefix)
    moved = tmp_path / "my $HOME work"
    (moved / "bin").mkdir(parents=True)
    (moved / "pyvenv.cfg").write_text((environment / "pyvenv.cfg").read_text())
    (moved / "lib").symlink_to(environment / "lib")
    (moved / "bin/python").symlink_to(Path(sys.executable).resolve())
    run = run_to_end(moved / "bin/python", "-c", TERMINATED_WHILE_LEAVING)
    assert (run.returncode, run.stdout) == (0, "True ['SIGTERM']\n"), run.stderr


@pytest.mark.stack
def test_a_ray_of_ours_is_closed_to_others_and_leaves_nothing_even_of_what_is_frozen():
    config = load_config(None, ["cluster.object_store_mib=80", "cluster.device=cpu"])
    with temporary_folder() as folder:
        started = Launch(config, models=["some/model"], device="cpu")
        try:
            pid = ray.get(ray.remote(lambda: os.getpid()).options(num_cpus=0).remote())
            frozen = psutil.Process(pid)
            address = ray.get_runtime_context().gcs_address
            known = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
            known["RAY_NUM_REDIS_GET_RETRIES"] = "1"  # a second each
            visitor = run_to_end(sys.executable, "-c", VISITOR, address, env=known, timeout=60)
            assert "refused: ConnectionError" in visitor.stdout
            assert "InvalidAuthToken" in visitor.stderr
            assert (folder / "ray").is_dir()
            frozen.suspend()
        finally:
            started.stop()
        environments = [p.info["environ"] or {} for p in psutil.process_iter(["environ"])]
        assert [e for e in environments if e.get(MARK) == started._mark] == []
        assert not is_alive(frozen)  # though its parent may not have waited for it
    assert not folder.exists()
    assert MARK not in os.environ
