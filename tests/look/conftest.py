"""The run, made up but whole, whose page several files read."""

import pytest
from report_runs import make_run, read

from istanas_jax.look.report import run_page


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "digits", searches=2)


@pytest.fixture(scope="module")
def page(run):
    return read(run_page.write(run))
