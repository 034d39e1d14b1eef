"""Where things are."""

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
HELPERS = ROOT / "tests" / "helpers"
SHARED = ROOT.parent / "shared"  # reference data, beside the checkout
