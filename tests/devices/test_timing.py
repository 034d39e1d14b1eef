"""The clock of all that is measured, on a machine whose speed is made up."""

import pytest

from istanas_jax.devices import timing


class Machine:
    """Programs of so many seconds each, on a machine that is slower for a while."""

    def __init__(self, slower=lambda now: 1.0):
        self.now, self.slower, self.order = 0.0, slower, []

    def program(self, name, seconds):
        def call():
            self.order.append(name)
            self.now += seconds * self.slower(self.now)

        return call


@pytest.fixture
def on(monkeypatch):
    def on(machine):
        monkeypatch.setattr(timing.time, "perf_counter", lambda: machine.now)
        return machine

    return on


def test_the_fastest_call_counts_and_the_first_does_not(on):
    machine = on(Machine(lambda now: 3.0 if now else 0.1))
    assert timing.fastest(machine.program("a", 1.0), calls=3, seconds=0.0) == pytest.approx(3.0)
    assert len(machine.order) == 4


def test_programs_that_are_compared_take_turns(on):
    """A machine that is three times slower at first: one after the other, `b` would look faster."""
    machine = on(Machine(lambda now: 3.0 if now < 20 else 1.0))
    calls = [machine.program("a", 1.0), machine.program("b", 1.1)]
    assert timing.fastest(calls[0]) > timing.fastest(calls[1])
    machine.now, machine.order = 0.0, []
    assert timing.fastest_of_each(calls, seconds=0.0) == pytest.approx([1.0, 1.1])
    assert "".join(machine.order) == "ab" + timing.TURNS * "aaabbb"
