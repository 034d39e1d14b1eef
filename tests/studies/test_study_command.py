"""The configs of studies, and what `study` refuses."""

import pytest
from study_configs import CONFIG, study_config

from istanas_jax.cli.main import main

STUDIES = ("cost", "correlation", "accuracy", "curves")


# Configs and the command.


@pytest.mark.parametrize("name", STUDIES)
def test_configs(name):
    for size in ("", "_small", "_tiny"):
        config = study_config(f"{name}{size}")
        assert config.study.name == name
        assert "method" not in config.search
    paper = study_config(name)
    assert (paper.search.cells, paper.search.channels, paper.search.epochs) == (8, 16, 50)
    assert (paper.train.cells, paper.train.epochs, paper.data.max_images) == (20, 600, 0)


def test_another_study_is_refused(capsys, tmp_path):
    given = ["--config", f"{CONFIG}:cost_tiny", "--workdir", str(tmp_path / "s")]
    assert main(["study", "curves", *given]) == 2
    assert "is no study of curves" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("variant", "override", "sentence"),
    [
        ("cost_tiny", "study.methods=('drats',)", "study.methods is ('drats',), it must be"),
        ("accuracy_tiny", "study.methods=('drats',)", "each one of ista, darts"),
        ("curves_tiny", "study.methods=('ista','ista')", "names 'ista' 2 times"),
        ("curves_tiny", "study.seeds=0", "study.seeds is 0, it must be a whole number from 1"),
        ("correlation_tiny", "study.resamples=0", "study.resamples is 0, it must be"),
        ("cost_tiny", "study.steps=0", "study.steps is 0, it must be a whole number from 1"),
        ("cost_tiny", "study.batches=(8,0)", "study.batches is (8, 0), it must be"),
        ("cost_tiny", "study.batches=()", "the study has nothing to do"),
        ("cost_tiny", "study.methods=()", "the study has nothing to do"),
        ("accuracy_tiny", "study.cells=('PC_DRATS',)", "PC_DRATS"),
    ],
)
def test_a_study_of_nothing_is_refused(capsys, tmp_path, variant, override, sentence):
    name = variant.split("_")[0]
    given = ["--config", f"{CONFIG}:{variant}", "--workdir", str(tmp_path / "s")]
    assert main(["study", name, *given, f"--config.{override}"]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    assert not (tmp_path / "s").exists()
