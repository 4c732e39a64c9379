"""Kernels work where nothing can be written; blocks run on the threads of whoever trains, in the same bits."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import toprank
from toprank import compute
from toprank.compute import each_block, on_threads_of

SCRIPT = """
import numpy as np
import toprank as tr
print(tr.evaluate([0.0, 1.0], [0, 1], "ndcg", qid=[2, 2]).mean["ndcg"])
"""


def test_kernels_work_where_nothing_can_be_written(tmp_path):
    """Nobody may write below a plain file, not even the superuser whom permissions do not bind."""
    package = tmp_path / "site" / "toprank"
    shutil.copytree(Path(toprank.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()
    home = tmp_path / "home"
    home.touch()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment = kept | {"HOME": str(home / "me"), "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (found.returncode, found.stdout) == (0, "1.0\n"), found.stderr


# ---- whose threads run the blocks ----


def lightgbm_library():
    library = pytest.importorskip("lightgbm").basic._LIB
    if not hasattr(library, "GOMP_parallel"):
        pytest.skip("LightGBM brings no OpenMP runtime that GNU's programs can call")
    return library


def seen_threads(n_blocks=8, threads=2):
    """The threads on which blocks run, with time enough for each to take one."""
    return set(each_block(lambda _: (time.sleep(0.02), threading.get_ident())[1], range(n_blocks), threads))


def test_blocks_run_on_the_threads_that_a_library_has():
    library = lightgbm_library()
    own = {thread.ident for thread in threading.enumerate()} | seen_threads()
    with on_threads_of(library, 2) as whose:
        assert whose == "LightGBM's threads"
        borrowed = seen_threads()
        assert each_block(lambda i: i * i, range(1_000), 2) == [i * i for i in range(1_000)]
    assert threading.get_ident() in borrowed  # the caller works, too
    assert len(borrowed) == 2
    assert not borrowed - {threading.get_ident()} & own  # and the other thread is none of ours
    assert seen_threads() <= own | {thread.ident for thread in threading.enumerate()}


def test_an_error_in_a_borrowed_thread_is_raised_and_ends_the_work():
    library, done = lightgbm_library(), []

    def work(i):
        if i == 3:
            raise ZeroDivisionError("block 3")
        done.append(i)

    with on_threads_of(library, 2), pytest.raises(ZeroDivisionError, match="block 3"):
        each_block(work, range(10_000), 2)
    assert len(done) < 10_000


def test_a_second_training_of_the_process_keeps_our_pool():
    library = lightgbm_library()
    with on_threads_of(library, 2), ThreadPoolExecutor(1) as other:

        def second():
            with on_threads_of(library, 2) as whose:
                return whose, each_block(lambda i: -i, range(50), 2)

        whose, answers = other.submit(second).result()
        assert whose.startswith("our own threads")
        assert answers == [-i for i in range(50)]
        # a thread of ours inside the first training, whose team is not its own
        assert other.submit(lambda: each_block(lambda i: -i, range(50), 2)).result() == answers
    with on_threads_of(library, 2) as whose:
        assert whose == "LightGBM's threads"  # given back


def test_a_library_without_a_runtime_leaves_us_our_pool():
    with on_threads_of(SimpleNamespace(), 2) as whose:  # another runtime than GNU's, or none
        assert whose.startswith("our own threads")
        assert each_block(lambda i: i, range(9), 2) == list(range(9))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_has_a_pool_of_its_own():
    """The parent's pool and LightGBM's team have no threads there: work handed to them would never be done."""
    library = lightgbm_library()
    seen_threads()
    for context in (nullcontext(), on_threads_of(library, 2)):
        with context:
            seen_threads()
            child = os.fork()
            if child == 0:
                os._exit(0 if each_block(lambda i: i, range(40), 2) == list(range(40)) else 1)
            end = time.monotonic() + 60
            while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
                time.sleep(0.01)
            if ended == (0, 0):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            assert ended == (child, 0)


def test_blocks_inside_blocks_do_not_wait_for_each_other():
    """More callers than the pool has threads: those that find none free do their work alone."""
    inner = each_block(lambda i: sum(each_block(lambda j: i * j, range(20), 8)), range(64), 8)
    assert inner == [i * sum(range(20)) for i in range(64)]
    with on_threads_of(lightgbm_library(), 2):
        assert each_block(lambda i: sum(each_block(lambda j: i * j, range(20), 2)), range(64), 2) == inner


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_waiting_is_raised_when_no_thread_writes_any_more(leaving, request):
    """Ctrl-C or SIGTERM that comes when the caller's own blocks are done, and another thread still has one."""

    def leave(*_):
        raise leaving

    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, leave)))
    begun, written = threading.Event(), []

    def work(_):
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            time.sleep(0.1)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.2)
        else:
            assert begun.wait(10)
        written.append(time.monotonic())

    with pytest.raises(leaving):
        each_block(work, range(2), 2)
    assert len(written) == 2  # nobody is at work any more


INTERRUPTED_EVERYWHERE = """
import sys
from toprank.compute import each_block

def interrupt(frame, event, _):
    global left
    left -= 1
    if left == 0:
        sys.settrace(None)
        raise KeyboardInterrupt
    frame.f_trace_lines = False
    return interrupt

interrupted, left = 0, 0
while left <= 0:
    left = interrupted + 1
    try:
        sys.settrace(interrupt)
        each_block(abs, range(-9, 0), 2)
        sys.settrace(None)
    except KeyboardInterrupt:
        interrupted += 1
    assert each_block(abs, range(-9, 0), 2) == list(range(9, 0, -1))
print(interrupted)
"""


def test_whoever_is_interrupted_while_handing_out_work_can_hand_it_out_again():
    """At the entry to each function and the return from it, ours and the interpreter's own: no lock stays locked."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_EVERYWHERE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


class Interrupted(list):
    """Blocks of which the main thread is interrupted while it takes its second, between two steps of our own."""

    asked = 0

    def __len__(self):
        if threading.current_thread() is threading.main_thread():
            self.asked += 1
            if self.asked == 3:  # each_block itself, then a block, then the next
                raise KeyboardInterrupt
        return super().__len__()


def test_an_interrupt_between_blocks_is_raised_when_no_thread_writes_any_more():
    begun, at_work = threading.Event(), set()

    def work(_):
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(10)
        else:
            at_work.add(threading.get_ident())
            begun.set()
            time.sleep(0.2)
            at_work.discard(threading.get_ident())

    for context in (nullcontext(), on_threads_of(lightgbm_library(), 2)):
        begun.clear()
        with context, pytest.raises(KeyboardInterrupt):
            each_block(work, Interrupted(range(9)), 2)
        assert not at_work


def test_an_interrupt_on_the_way_into_a_borrowed_thread_is_not_lost(monkeypatch):
    """C has no exceptions: what ends our own code there is told to `sys.unraisablehook`, and to nobody else."""
    library, told = lightgbm_library(), []

    def interrupted():
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "unraisablehook", lambda problem: told.append(problem.exc_type))
    with on_threads_of(library, 2), pytest.raises(KeyboardInterrupt):
        compute._BORROWED.get().run(interrupted)
    assert told == [KeyboardInterrupt]


def test_trees_are_the_same_bits_whoever_runs_the_blocks(monkeypatch):
    data = toprank.synthetic(n_queries=300, seed=0)
    borrowed = toprank.TreeRanker("LambdaRank", n_trees=5, threads=2).fit(data).predict(data)

    @contextmanager
    def pool(*_):
        yield "our pool"

    monkeypatch.setattr("toprank.rankers.trees.training.on_threads_of", pool)
    ours = toprank.TreeRanker("LambdaRank", n_trees=5, threads=2).fit(data).predict(data)
    assert borrowed.tobytes() == ours.tobytes()


def test_a_command_has_openmp_spin_shortly_unless_told_otherwise():
    code = "import sys; sys.argv[1:] = ['--version']; from toprank.cli.main import run\ntry:\n run()\nfinally:\n"
    code += " import os; print(os.environ.get('GOMP_SPINCOUNT'), file=sys.stderr)"
    kept = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}

    def spins(**more):
        done = subprocess.run([sys.executable, "-c", code], env=kept | more, capture_output=True, text=True, check=True)
        return done.stderr.split()[-1]

    assert spins() == "1000"
    assert spins(GOMP_SPINCOUNT="7") == "7"
    assert spins(OMP_WAIT_POLICY="active") == "None"
    plain = "import os, toprank, lightgbm; print(os.environ.get('GOMP_SPINCOUNT'))"
    done = subprocess.run([sys.executable, "-c", plain], env=kept, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None"]  # an import sets nothing


def test_matrix_products_have_one_thread_also_those_of_a_library_that_comes_later(monkeypatch):
    from threadpoolctl import threadpool_info

    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before, looked_for = threads(), []
    assert before
    for name in ("first", "first", "second"):
        monkeypatch.setitem(sys.modules, f"a module of the {name}", sys)  # may have brought a library
        with compute.one_blas_thread():
            assert set(threads()) == {1}
            looked_for.append(compute._thread_pools(len(sys.modules)))
        assert threads() == before
    assert looked_for[0] is looked_for[1] is not looked_for[2]


@pytest.mark.parametrize("first_leaves_first", [True, False])
def test_matrix_products_get_their_threads_back_whoever_leaves_last(first_leaves_first):
    """A search enters on the main thread and on others, and they leave in any order."""
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def other():
        with compute.one_blas_thread():
            entered.set()
            assert leave.wait(10)
        left.set()

    with threadpool_limits(3, user_api="blas"):
        thread = threading.Thread(target=other)
        if first_leaves_first:
            with compute.one_blas_thread():
                thread.start()
                assert entered.wait(10)
            assert set(threads()) == {1}  # the other is still at work
            leave.set()
        else:
            thread.start()
            assert entered.wait(10)
            with compute.one_blas_thread():
                leave.set()
                assert left.wait(10)
                assert set(threads()) == {1}
        thread.join(10)
        assert set(threads()) == {3}


BLAS_INTERRUPTED = """
import sys
from threadpoolctl import ThreadpoolController
import numpy
from toprank import compute

pools = [pool for pool in ThreadpoolController().lib_controllers if pool.user_api == "blas"]
before = [pool.num_threads for pool in pools]

def interrupt(frame, event, _):
    global left
    left -= 1
    if left == 0:
        sys.settrace(None)
        raise KeyboardInterrupt

interrupted, left = 0, 0
with compute.one_blas_thread():
    pass
while left <= 0:
    left = interrupted + 1
    try:
        sys.settrace(interrupt)
        with compute.one_blas_thread():
            pass
        sys.settrace(None)
    except KeyboardInterrupt:
        interrupted += 1
    sys.settrace(None)
    assert [pool.num_threads for pool in pools] == before, left
    assert not compute._BLAS.users
print(interrupted)
"""


def test_whoever_is_interrupted_while_limiting_matrix_products_leaves_no_limit():
    """At the entry to each function, ours and those of threadpoolctl: Python hears of signals there."""
    done = subprocess.run([sys.executable, "-c", BLAS_INTERRUPTED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_blocks_run_on_no_more_threads_than_asked_for():
    seen_threads(64, 8)  # our pool has as many as it ever gets
    assert len(seen_threads(16, 2)) == 2
    assert seen_threads(4, 1) == {threading.get_ident()}
