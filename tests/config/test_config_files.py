"""Every config loads, every variant applies, and typing errors are answered in words."""

import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from places import ROOT

from istanas_jax.config.files import ConfigError, keys, load_config
from istanas_jax.methods.ista import recovery_interval

FOLDER = ROOT / "configs"
SHARED = ("__init__", "paper", "methods")  # by the configs
STUDIES = ("study",)  # tested by themselves
FILES = sorted(path for path in FOLDER.glob("*.py") if path.stem not in SHARED + STUDIES)
TWO_STAGE = str(FOLDER / "cifar10_two_stage.py")


def test_all_configs_are_there():
    assert [path.stem for path in FILES] == [
        "baselines",
        "cifar10_one_stage",
        "cifar10_retrain",
        "cifar10_two_stage",
        "digits",
        "imagenet_one_stage",
        "imagenet_retrain",
        "images",
        "transfer",
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_config_and_its_tiny_variant(path):
    config, tiny = load_config(str(path)), load_config(f"{path}:tiny")
    assert keys(config) == keys(tiny)
    assert config.schedule in ("two_stage", "one_stage", "retrain")
    for phase in {"search", "train"} & set(config):
        assert tiny[phase].epochs < config[phase].epochs
        assert (
            tiny[phase].cells * tiny[phase].channels < config[phase].cells * config[phase].channels
        )
    assert path.read_text().split('"""')[1].count(f"configs/{path.name}") == 1


def test_numbers_of_the_paper():
    config = load_config(TWO_STAGE)
    assert (config.search.ista.m, config.search.ista.lam, config.space.name) == (7, 1e-5, "darts")
    assert (config.search.cells, config.search.channels, config.search.epochs) == (8, 16, 50)
    assert (config.train.cells, config.train.channels, config.train.epochs) == (20, 36, 600)
    assert load_config(str(FOLDER / "imagenet_one_stage.py")).train.weights.weight_decay == 3e-5


def test_overrides():
    config = load_config(
        TWO_STAGE, ["--config.search.epochs=3", "--config.search.ista.recovery.every=step"]
    )
    assert config.search.epochs == 3
    assert config.search.ista.recovery.every == "step"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("lamda=1", "unknown config key lamda, did you mean search.ista.lam?"),
        ("search.epoch=3", "unknown config key search.epoch, did you mean search.epochs?"),
        ("zzzz=3", "unknown config key zzzz; there are: checkpoint.*, data.*, log.*, schedule"),
        ("data.zzzz=3", "unknown config key data.zzzz; there are: data.classes, data.dir, data."),
        ("search.epochs=many", "--config.search.epochs=many"),
    ],
)
def test_bad_overrides_are_refused(override, sentence):
    with pytest.raises(ConfigError) as error:
        load_config(TWO_STAGE, [f"--config.{override}"])
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_files_are_refused():
    with pytest.raises(ConfigError, match=r"nowhere\.py does not exist"):
        load_config("nowhere.py")
    with pytest.raises(ConfigError, match="no variant 'huge', there are: small, tiny"):
        load_config(f"{TWO_STAGE}:huge")


def test_shipped_configs_are_found_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config("digits:tiny") == load_config(str(FOLDER / "digits.py:tiny"))
    with pytest.raises(ConfigError, match="config file digitz does not exist"):
        load_config("digitz")


def own_config(folder: Path, epochs: int) -> str:
    """A config file in a folder of its own, with a number in a file beside it."""
    folder.mkdir()
    (folder / "own_numbers.py").write_text(f"epochs = {epochs}\n")
    (folder / "own.py").write_text(
        "import sys\n\nimport own_numbers\n\nfrom configs import digits\n\n\n"
        "def get_config(variant=''):\n    from configs import paper\n\n"
        "    config = digits.get_config(variant)\n    config.search.epochs = own_numbers.epochs\n"
        f"    assert {str(folder)!r} not in sys.path\n    return config\n"
    )
    return str(folder / "own.py")


def test_own_configs_build_on_the_shipped_ones_and_on_files_beside_them(tmp_path):
    files = {epochs: own_config(tmp_path / str(epochs), epochs) for epochs in (8, 9)}
    before = list(sys.path), list(sys.meta_path), set(sys.modules)
    for epochs in (8, 9, 8):  # files of one name, each beside its own config
        assert load_config(f"{files[epochs]}:tiny").search.epochs == epochs
    assert (list(sys.path), list(sys.meta_path), set(sys.modules)) == before


def test_a_package_of_the_caller_named_configs_stays(tmp_path, monkeypatch):
    theirs = ModuleType("configs")
    monkeypatch.setitem(sys.modules, "configs", theirs)
    monkeypatch.setitem(sys.modules, "configs.paper", theirs)
    assert load_config(own_config(tmp_path / "own", 9)).search.epochs == 9
    assert sys.modules["configs"] is sys.modules["configs.paper"] is theirs


@pytest.mark.parametrize("every", ["epoch", "step", "52"])
def test_recovery_takes_a_name_or_a_number(every):
    config = load_config("digits", [f"--config.search.ista.recovery.every={every}"])
    steps = {"epoch": 10, "step": 1, "52": 52}[every]
    assert recovery_interval(config.search.ista.recovery.every, 10) == steps


def test_every_package_is_in_the_wheel():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = (path.parent.relative_to(ROOT) for path in ROOT.glob("istanas_jax/**/__init__.py"))
    expected = {".".join(folder.parts) for folder in folders} | {"istanas_jax.configs"}
    assert set(packages["packages"]) == expected
