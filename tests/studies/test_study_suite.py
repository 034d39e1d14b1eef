"""The study over search spaces, with made-up runs."""

import json

import pytest
from made_up_studies import genotype, text
from study_configs import study_config

from istanas_jax.studies.suite import SuiteStudy


def test_suite(drivers, tmp_path):
    done, _ = drivers
    overrides = ("study.spaces=('s2','s4')", "study.methods=('ista','random')", "study.seeds=1")
    results = SuiteStudy(study_config("suite_tiny", *overrides), tmp_path).run()
    assert done == ["s2_ista_0", "s2_random_0", "s4_ista_0", "s4_random_0"]
    asked = json.loads((tmp_path / "s4_ista_0" / "config.json").read_text())
    assert asked["space"]["name"] == "s4"
    normal, reduction = (
        sum(op in ("max_pool_3x3", "avg_pool_3x3", "skip_connect") for op, _ in genotype()[cell])
        for cell in ("normal", "reduce")
    )
    for row in results["rows"]:
        assert row["weight_free"] == [normal, reduction]
    shown = text(tmp_path)
    assert f"| s4 | random search | 1 | 80.00 | {normal:.1f} | {reduction:.1f} | 0.001 M |" in shown
    assert f"| s2_ista_0 | 0 | 80.00 | {normal} + {reduction} | 1,000 | abc |" in shown
    done.clear()
    more = ("study.spaces=('s2','s4','s1')", *overrides[1:])
    SuiteStudy(study_config("suite_tiny", *more), tmp_path).run()
    assert done == ["s1_ista_0", "s1_random_0"]


@pytest.mark.parametrize(
    ("spaces", "sentence"),
    [
        ("('s2','s2')", "study.spaces names 's2' 2 times: once is enough"),
        ("('s9',)", "unknown space 's9', there are: darts, "),
        ("()", "nothing to do: .*, study.spaces the search spaces"),
    ],
)
def test_spaces_of_a_suite(spaces, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        SuiteStudy(study_config("suite_tiny", f"study.spaces={spaces}"), tmp_path)
