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
