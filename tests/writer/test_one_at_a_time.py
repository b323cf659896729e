"""Pieces of work: never two at once, never one inside of another, no error goes further, an interruption does."""

from __future__ import annotations

import threading

import pytest

from msprobe.writer.one_at_a_time import OneAtATime


class Work(OneAtATime):
    def __init__(self) -> None:
        super().__init__()
        self.over = False
        self.failures: list[Exception] = []

    def _is_over(self) -> bool:
        return self.over

    def _failed(self, failure: Exception) -> None:
        self.failures.append(failure)


def test_nothing_begins_inside_of_itself() -> None:
    work, done = Work(), []

    def outer() -> None:
        done.append("outer")
        work._guarded(lambda: done.append("inner"))

    work._guarded(outer)
    work._guarded(lambda: done.append("after"))
    assert done == ["outer", "after"]


def test_two_that_do_not_belong_together_may_nest() -> None:
    first, second, done = Work(), Work(), []
    first._guarded(lambda: second._guarded(lambda: done.append(1)))
    assert done == [1]


def test_another_thread_waits_or_does_nothing() -> None:
    work, begun, go_on, done = Work(), threading.Event(), threading.Event(), []

    def long() -> None:
        begun.set()
        assert go_on.wait(30)
        done.append("long")

    threads = [threading.Thread(target=work._guarded, args=(long,))]
    threads[0].start()
    assert begun.wait(30)
    work._guarded(lambda: done.append("at once"), wait=False)
    threads.append(threading.Thread(target=work._guarded, args=(lambda: done.append("later"),)))
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert done == ["long", "later"]


def test_an_error_goes_no_further_and_an_interruption_leaves_nothing_locked() -> None:
    work, done = Work(), []

    def failing(error: BaseException) -> None:
        raise error

    error = OSError("no space")
    work._guarded(lambda: failing(error))
    assert work.failures == [error]
    with pytest.raises(KeyboardInterrupt):
        work._guarded(lambda: failing(KeyboardInterrupt()))
    work._busy = True  # as an interruption between two lines may leave it
    work._guarded(lambda: done.append(1))
    assert (done, len(work.failures)) == ([1], 1)


def test_nothing_is_done_when_it_is_over() -> None:
    work, done = Work(), []
    work.over = True
    work._guarded(lambda: done.append(1))
    assert done == []
