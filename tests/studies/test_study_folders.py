"""Folders of studies that were begun when a study's name was under the key `study.kind`."""

import json

import pytest

from istanas_jax.config.files import load_config
from istanas_jax.runs.folder import WorkdirError
from istanas_jax.studies.base import StudyDir


def test_a_folder_with_the_earlier_key_goes_on(tmp_path):
    config = load_config("study:cost_tiny")
    plain = json.loads(config.to_json_best_effort())
    plain["study"]["kind"] = plain["study"].pop("name")
    (tmp_path / "study_config.json").write_text(json.dumps(plain))
    StudyDir.open(tmp_path, config)
    config.study.name = "curves"
    with pytest.raises(WorkdirError, match=r"study\.name was cost, is curves"):
        StudyDir.open(tmp_path, config)
