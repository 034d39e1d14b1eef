import contextlib
import io
import pty
import re
import struct
import termios
import threading
from fcntl import ioctl

import pytest

from istanas_jax.runs.progress import Progress, format_seconds


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def plain(**more):
    stream, clock = io.StringIO(), Clock()
    return Progress("search 0", stream=stream, clock=clock, **more), stream, clock


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00:00"), (59.6, "0:01:00"), (3723, "1:02:03"), (100 * 3600, "100:00:00")],
)
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text


def test_plain_lines_at_most_every_interval_and_one_at_the_end():
    progress, stream, clock = plain(total=200)
    with progress:
        for step in range(1, 201):
            clock.now += 0.25
            progress.update(step, f"loss {step}")
    assert stream.getvalue().splitlines() == [
        "search 0  1/200 steps  0 %  ETA 0:00:50  loss 1",
        "search 0  41/200 steps  20 %  ETA 0:00:40  loss 41",
        "search 0  81/200 steps  40 %  ETA 0:00:30  loss 81",
        "search 0  121/200 steps  60 %  ETA 0:00:20  loss 121",
        "search 0  161/200 steps  80 %  ETA 0:00:10  loss 161",
        "search 0  200/200 steps  100 %  in 0:00:50  loss 200",
    ]


def test_eta_is_of_this_session_and_leaves_the_compiling_out():
    progress, stream, clock = plain(total=5000, done=4000, interval=0)
    progress.update(4000)
    clock.now += 60
    progress.update(4100)
    assert stream.getvalue().splitlines() == [
        "search 0  4000/5000 steps  80 %",  # no rate yet
        "search 0  4100/5000 steps  82 %  ETA 0:09:00",
    ]
    progress, stream, clock = plain(total=100, interval=0)
    clock.now += 300  # compiles, and does one step
    progress.update(1)
    clock.now += 1
    progress.update(2)
    assert stream.getvalue().splitlines()[1].endswith("ETA 0:01:38")


def test_stopped_half_way_it_says_how_far_it_came():
    progress, stream, _ = plain(total=10, unit="epoch")
    with pytest.raises(KeyboardInterrupt), progress:
        progress.update(3, "loss 1")
        progress.update(4, "loss 2")
        raise KeyboardInterrupt
    assert stream.getvalue().splitlines()[-1] == "search 0  4/10 epochs  40 %  in 0:00:00  loss 2"


def test_say_and_odd_totals():
    progress, stream, _ = plain(total=0)
    with progress:
        progress.say("compiling")
    assert stream.getvalue() == "compiling\nsearch 0  0/0 steps  0 %  in 0:00:00\n"
    progress, stream, _ = plain(total=1, unit="search")
    progress.close()
    assert "0/1 search " in stream.getvalue()


def test_stderr_is_looked_up_when_it_is_needed(capsys):
    with Progress("search 0", total=1) as progress:
        progress.update(1)
    assert capsys.readouterr().err == "search 0  1/1 step  100 %  in 0:00:00\n"


def on_terminal(columns, work, **more):
    """What a terminal of so many columns receives."""
    main, side = pty.openpty()
    ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    received = bytearray()

    def receive():  # at the same time: a terminal's buffer is small
        with open(main, "rb", buffering=0) as terminal, contextlib.suppress(OSError):
            while part := terminal.read(4096):
                received.extend(part)

    reader = threading.Thread(target=receive)
    reader.start()
    with open(side, "w") as stream, Progress("search 0", stream=stream, **more) as progress:
        work(progress)
    reader.join(10)
    return received.decode()


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)


FIGURES = "epoch 3/50  1,234 images/s  loss 1.234  accuracy 45.1 %  2 nodes changed"


def work(progress):
    clock = progress._clock
    for step in range(1000, 1200, 10):
        clock.now += 1
        progress.update(step, FIGURES)
        if step == 1100:
            progress.say("step compiled in 12 s {0}")


def test_bar():
    received = on_terminal(160, work, total=5000, done=1000, clock=Clock())
    drawn = re.split(r"[\r\n]+", received)
    assert "step compiled in 12 s {0}" in drawn
    bar = [part for part in drawn if "1180/5000" in part]
    assert bar[0].startswith("search 0  24 %|")
    assert bar[0].endswith(f"1180/5000  0:00:19  ETA 0:06:22  {FIGURES}")
    assert received.endswith("\n")
    assert drawn[-2].rstrip().endswith(f"1190/5000  0:00:20  {FIGURES}")
    assert received.index("step compiled") < received.index("1110/5000")


@pytest.mark.parametrize("columns", [80, 40, 12])
def test_narrow_terminal(columns):
    received = on_terminal(columns, work, total=5000, done=1000, clock=Clock())
    for part in re.split(r"[\r\n]+", received):
        assert len(part) <= columns or part.startswith("step compiled")


def test_terminal_of_unknown_width_and_braces_in_figures():
    received = on_terminal(0, lambda progress: progress.update(5, "{x}"), total=10)
    assert "5/10" in received


def test_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    received = on_terminal(80, lambda progress: progress.update(5), total=10)
    assert received.splitlines()[-1] == "search 0  5/10 steps  50 %  in 0:00:00"


def test_no_thread_is_left():
    before = threading.active_count()
    on_terminal(80, work, total=5000, clock=Clock())
    assert threading.active_count() == before
