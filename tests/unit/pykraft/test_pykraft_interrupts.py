"""Signals that end a command: at once, or after what must be done whole."""

import os
import signal

import pytest

from pykraft.interrupts import Interrupted, Interrupts


def test_a_signal_raises_and_afterwards_means_what_it_meant():
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts(), pytest.raises(Interrupted) as raised:
        os.kill(os.getpid(), signal.SIGTERM)
    assert raised.value.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_is_held_together_is_done_first():
    done = []

    def two_steps(interrupts):
        with interrupts.held():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("whole")
        done.append("not this")

    with Interrupts() as interrupts, pytest.raises(Interrupted):
        two_steps(interrupts)
    assert done == ["whole"]


def test_a_signal_that_the_caller_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
