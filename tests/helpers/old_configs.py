"""What version 0.1.0 wrote to the config.json of its runs, by the name of the config."""

import json
from pathlib import Path

OLD_CONFIGS = json.loads((Path(__file__).parent / "configs_0_1_0.json").read_text())
