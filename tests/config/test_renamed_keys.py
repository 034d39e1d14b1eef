"""A key of version 0.1.0 is answered with the name it has now, wherever it is given."""

import pytest
from old_configs import OLD_CONFIGS

from istanas_jax.config.files import ConfigError, keys, load_config
from istanas_jax.config.renamed import new_name
from istanas_jax.runs.folder import flat


@pytest.mark.parametrize("name", OLD_CONFIGS)
def test_every_old_key_leads_to_a_key_of_today(name):
    before, now = flat(OLD_CONFIGS[name]), keys(load_config(name))
    gone = [key for key in before if key not in now]
    assert gone and {new_name(key) for key in gone} <= set(now)
    assert not any(map(new_name, now))


def test_an_old_override_is_told_the_new_name():
    with pytest.raises(ConfigError) as error:
        load_config("digits", ["--config.retrain.weights.clip=3"])
    said = "unknown config key retrain.weights.clip, it is now called train.weights.max_gradient_"
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("config", "old", "new"),
    [
        ("digits", "config.data.limit = 10", "data.limit is now called data.max_images"),
        ("study", "config.study.kind = 'cost'", "study.kind is now called study.name"),
    ],
)
def test_an_old_config_file_is_told_the_new_name(tmp_path, config, old, new):
    own = tmp_path / "own.py"
    own.write_text(
        f"from configs import {config}\n\n\ndef get_config():\n"
        f"    config = {config}.get_config()\n    {old}\n    return config\n"
    )
    with pytest.raises(ConfigError, match=f"^{new}$"):
        load_config(str(own))
