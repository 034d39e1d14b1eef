"""The cloud that the tests of the TPU launcher share."""

import fake_gcloud
import pytest
from tpu_cloud import Cloud


@pytest.fixture
def cloud(tmp_path):
    made = Cloud(tmp_path)
    yield made
    fake_gcloud.kill_jobs(made.folder)
