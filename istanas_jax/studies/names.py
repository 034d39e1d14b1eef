"""The methods as tables name them."""

ONE_STAGE = "one_stage"
NAMES = {
    "ista": "two-stage ISTA-NAS",
    ONE_STAGE: "one-stage ISTA-NAS",
    "darts": "DARTS (1st order)",
    "darts_second_order": "DARTS (2nd order)",
    "pc_darts": "PC-DARTS",
    "snas": "SNAS",
    "nasp": "NASP",
    "pdarts": "P-DARTS",
    "random": "random search",
}


def name_of(method: str) -> str:
    """The full name of a method; own methods and given cells keep the name they have."""
    return NAMES.get(method, method)
