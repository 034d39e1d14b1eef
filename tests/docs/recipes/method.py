"""Run where CONTRIBUTING.md's method sigmoid is added: it is found, configured, and searches."""

import json
import sys
from pathlib import Path

from istanas_jax.config.files import ConfigError, load_config
from istanas_jax.methods import METHODS, find_method, title_of

CONFIG = str(Path("configs", "digits.py:tiny"))
SMALL = ("space.nodes=2", "{}.cells=1", "{}.epochs=1", "{}.batch=16", "data.max_images=80")


def config(*changes):
    changes = ["search.method=sigmoid", *changes]
    return load_config(CONFIG, [f"--config.{change}" for change in changes])


assert next(iter(METHODS)) == "ista" and title_of("sigmoid") == "DARTS with a sigmoid"
as_darts = load_config(CONFIG, ["--config.search.method=darts"]).search.darts
assert config().search.sigmoid == as_darts and "darts" not in config().search
for change, words in (
    ("search.sigmoid.sigma=-1.0", "search.sigmoid.sigma is -1.0, it must be a number above 0"),
    ("search.method=sigmoids", "sigmoid"),
):
    try:
        config(change)
    except ConfigError as error:
        assert words in str(error), error
    else:
        raise AssertionError(change)
assert "jax" not in sys.modules  # to find a method and to read its config, none is imported

import jax  # noqa: E402
import numpy as np  # noqa: E402

from istanas_jax.schedules import two_stage  # noqa: E402

method = find_method("sigmoid")(config(), 10)
arch = method.init_variables(jax.random.key(0))
table = method.network_inputs(arch)["mixture"].table
np.testing.assert_allclose(table, 1 / (1 + np.exp(-arch.alpha[..., 1:])), rtol=1e-6)

small = [key.format(phase) for key in SMALL for phase in ("search", "train")]
result = two_stage.run(config(*dict.fromkeys(small), "search.runs=1", "train.runs=1"), "run")
assert json.loads(Path("run", "result.json").read_text())["genotype"] == result["genotype"]
