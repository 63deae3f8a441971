"""The verifier pool: order, time limits, lost workers, callers from threads, a clean end."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from tables import case_file, cases
from test_coding import SQUARE, in_block

from comas.utils.processes import is_alive
from comas.verification import Verifier

pytestmark = pytest.mark.stack

CHECKER = "assert f(2) == 4 and f(-3) == 9"
ENDLESS = ("math", r"\boxed{(x+y+z+t)^{9000}}", "x+1")
WALL_LIMIT_S_HERE = 6.0


@pytest.fixture(scope="module")
def verifier():
    with Verifier(num_workers=2, cpu_limit_s=2.0) as verifier:
        yield verifier


def test_a_batch_is_judged_in_order_by_the_chosen_grader(verifier):
    items = [
        ("math", r"\boxed{71}", "71"),
        ("science", r"\boxed{100}", "463"),
        ("coding", in_block(SQUARE), CHECKER),
        ("math", "seventy-one", "71"),
        ("choice", r"\boxed{(A)}", "A"),
        ("math", r"\boxed{45}", r"45 \pi"),
    ]
    expected = ["correct", "wrong", "correct", "unanswered", "correct", "wrong"]
    assert verifier.verify_batch(items) == expected
    assert verifier.verify_batch(items[-2:], grader="published") == ["unanswered", "correct"]
    assert verifier.verify_batch(iter(())) == []


def test_an_item_over_the_limit_fails_and_holds_up_one_worker_only(verifier, caplog):
    others = [("math", rf"\boxed{{\frac{{{n}}}{{7}}}}", rf"\frac {n}7") for n in range(1, 9)]
    pending = verifier.submit([ENDLESS, *others])
    time.sleep(0.5)
    assert verifier.verify_batch([("math", r"\boxed{0.5}", r"\frac12")]) == ["correct"]
    assert not pending.done()
    assert pending.result() == ["failed"] + ["correct"] * 8
    assert "failed on 1 of 9 items: 1 x over the limit of CPU time" in caplog.text
    assert verifier.verify_batch(others) == ["correct"] * 8, "the killed worker is replaced"


@pytest.mark.parametrize(("waits_s", "verdict"), [(2, "correct"), (9, "failed")])
def test_time_in_which_a_worker_does_not_compute_counts_by_a_clock_alone(caplog, waits_s, verdict):
    """So a verdict does not depend on how busy the machine is."""
    waiting = ("coding", in_block(f"import time\ntime.sleep({waits_s})\n" + SQUARE), CHECKER)
    with Verifier(num_workers=1, cpu_limit_s=1.0, wall_limit_s=WALL_LIMIT_S_HERE) as verifier:
        assert verifier.verify_batch([waiting]) == [verdict]
    assert ("1 x TimeoutError" in caplog.text) == (verdict == "failed")


@cases("lost, number", ("worker", 9), ("worker", signal.SIGSTOP), ("sandbox", 9))
def test_an_item_whose_worker_or_sandbox_is_lost_is_judged_again(caplog, lost, number):
    items = [("coding", in_block(f"import time\ntime.sleep(1)\nx = {n}"), "") for n in range(2)]
    with Verifier(num_workers=1, wall_limit_s=WALL_LIMIT_S_HERE) as verifier:
        assert verifier.verify_batch(items[:1]) == ["correct"]
        [worker] = verifier._pools[0]._pool_manager.worker_manager.workers
        pending = verifier.submit(items)
        time.sleep(0.5)
        [server] = psutil.Process(worker).children()
        os.kill(server.pid if lost == "sandbox" else worker, number)
        assert pending.result() == ["correct"] * 2
    assert "failed" not in caplog.text


def test_a_pool_whose_idle_worker_is_lost_is_replaced():
    with Verifier(num_workers=1) as verifier:
        right = ("math", r"\boxed{0.5}", r"\frac12")
        assert verifier.verify_batch([right]) == ["correct"]
        [worker] = verifier._pools[0]._pool_manager.worker_manager.workers
        os.kill(worker, signal.SIGKILL)
        time.sleep(0.5)
        assert verifier.verify_batch([right]) == ["correct"]
        assert len(verifier._pools) == 2
    assert not any(pool.active for pool in verifier._pools)


def test_a_verifier_that_fails_is_reported_and_equal_items_are_judged_once(verifier, caplog):
    told: list[None] = []
    items = [("science", r"\boxed{1}", gold) for gold in ("swift", "1", "swift", "swift")]
    verdicts = verifier.submit(items, on_verdict=lambda: told.append(None)).result()
    assert verdicts == ["failed", "correct", "failed", "failed"] and len(told) == 2
    assert "failed on 3 of 4 items: 3 x ValueError: the gold answer 'swift'" in caplog.text


def test_what_is_under_way_when_it_closes_has_failed_without_a_word(caplog):
    """As by Ctrl-C: "the verifier failed" would be a false alarm."""
    verifier = Verifier(num_workers=1)
    items = [("coding", in_block(f"import time\ntime.sleep({n})"), "") for n in range(50, 70)]
    pending = verifier.submit(items)
    verifier.close()
    assert pending.result() == ["failed"] * 20
    assert caplog.text == ""
    with pytest.raises(RuntimeError, match="not active"):
        verifier.submit(items)


@pytest.mark.parametrize("ending", ["killed", "exit"])
def test_nothing_is_left_of_an_owner_that_ends_with_work_under_way(tmp_path, ending):
    script = tmp_path / "owner.py"
    source = case_file("verifier_pool")["OWNER"].replace("ENDLESS", repr(ENDLESS))
    script.write_text(source.replace("ALIVE_S", "60" if ending == "killed" else "1.5"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, str(script)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    time.sleep(1)
    descendants = psutil.Process(owner.pid).children(recursive=True)
    assert len(descendants) >= 5, "forkserver, two workers, a sandbox server, a program"
    if ending == "killed":
        owner.send_signal(signal.SIGKILL)
    assert owner.wait(timeout=30) == (-signal.SIGKILL if ending == "killed" else 3)
    deadline = time.monotonic() + 10
    while alive := [process for process in descendants if is_alive(process)]:
        assert time.monotonic() < deadline, f"{alive} are left"
        time.sleep(0.05)
