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
    """In full; a method of one's own and a given cell have the name they are chosen by."""
    return NAMES.get(method, method)
