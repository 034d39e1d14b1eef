"""Cells published by ISTA-NAS and by others on the same search space: data only.

CELLS holds one line per node, its two connections as (operation, predecessor); read them as
`Genotype`s through `genotype.published()`.

PARAMETERS holds the exact size of the network that each genotype makes, the auxiliary head and
the additional batch norms of one-stage networks not counted: 36 channels, 20 cells, 10 classes
(CIFAR-10), and 48 channels, 14 cells, 1000 classes (ImageNet).
"""

CELLS = {
    # ISTA-NAS: Yang et al., 2020.
    "ISTA_twostage": {
        "normal": (
            (("skip_connect", 0), ("dil_conv_3x3", 1)),
            (("sep_conv_5x5", 0), ("dil_conv_3x3", 2)),
            (("dil_conv_3x3", 1), ("sep_conv_3x3", 0)),
            (("sep_conv_3x3", 2), ("skip_connect", 0)),
        ),
        "normal_concat": (2, 3, 4, 5),
        "reduce": (
            (("avg_pool_3x3", 0), ("sep_conv_5x5", 1)),
            (("dil_conv_5x5", 2), ("max_pool_3x3", 1)),
            (("dil_conv_5x5", 3), ("sep_conv_3x3", 1)),
            (("dil_conv_5x5", 4), ("sep_conv_5x5", 1)),
        ),
        "reduce_concat": (2, 3, 4, 5),
    },
    "ISTA_onestage": {
        "normal": (
            (("skip_connect", 0), ("dil_conv_3x3", 1)),
            (("sep_conv_3x3", 1), ("dil_conv_5x5", 2)),
            (("avg_pool_3x3", 3), ("sep_conv_3x3", 1)),
            (("sep_conv_5x5", 1), ("sep_conv_3x3", 2)),
        ),
        "normal_concat": (2, 3, 4, 5),
        "reduce": (
            (("avg_pool_3x3", 0), ("max_pool_3x3", 1)),
            (("skip_connect", 0), ("max_pool_3x3", 1)),
            (("sep_conv_5x5", 1), ("avg_pool_3x3", 0)),
            (("max_pool_3x3", 0), ("dil_conv_5x5", 2)),
        ),
        "reduce_concat": (2, 3, 4, 5),
    },
    "ISTA_ImageNet": {
        "normal": (
            (("sep_conv_3x3", 1), ("sep_conv_3x3", 0)),
            (("sep_conv_3x3", 1), ("skip_connect", 2)),
            (("sep_conv_3x3", 1), ("sep_conv_3x3", 0)),
            (("sep_conv_3x3", 1), ("dil_conv_5x5", 4)),
        ),
        "normal_concat": (2, 3, 4, 5),
        "reduce": (
            (("skip_connect", 0), ("sep_conv_3x3", 1)),
            (("dil_conv_5x5", 2), ("sep_conv_3x3", 0)),
            (("sep_conv_3x3", 0), ("skip_connect", 2)),
            (("sep_conv_3x3", 2), ("skip_connect", 3)),
        ),
        "reduce_concat": (2, 3, 4, 5),
    },
    # Zoph et al., 2018.
    "NASNet_A": {
        "normal": (
            (("sep_conv_5x5", 1), ("sep_conv_3x3", 0)),
            (("sep_conv_5x5", 0), ("sep_conv_3x3", 0)),
            (("avg_pool_3x3", 1), ("skip_connect", 0)),
            (("avg_pool_3x3", 0), ("avg_pool_3x3", 0)),
            (("sep_conv_3x3", 1), ("skip_connect", 1)),
        ),
        "normal_concat": (2, 3, 4, 5, 6),
        "reduce": (
            (("sep_conv_5x5", 1), ("sep_conv_7x7", 0)),
            (("max_pool_3x3", 1), ("sep_conv_7x7", 0)),
            (("avg_pool_3x3", 1), ("sep_conv_5x5", 0)),
            (("skip_connect", 3), ("avg_pool_3x3", 2)),
            (("sep_conv_3x3", 2), ("max_pool_3x3", 1)),
        ),
        "reduce_concat": (4, 5, 6),
    },
    # Real et al., 2019.
    "AmoebaNet_A": {
        "normal": (
            (("avg_pool_3x3", 0), ("max_pool_3x3", 1)),
            (("sep_conv_3x3", 0), ("sep_conv_5x5", 2)),
            (("sep_conv_3x3", 0), ("avg_pool_3x3", 3)),
            (("sep_conv_3x3", 1), ("skip_connect", 1)),
            (("skip_connect", 0), ("avg_pool_3x3", 1)),
        ),
        "normal_concat": (4, 5, 6),
        "reduce": (
            (("avg_pool_3x3", 0), ("sep_conv_3x3", 1)),
            (("max_pool_3x3", 0), ("sep_conv_7x7", 2)),
            (("sep_conv_7x7", 0), ("avg_pool_3x3", 1)),
            (("max_pool_3x3", 0), ("max_pool_3x3", 1)),
            (("conv_7x1_1x7", 0), ("sep_conv_3x3", 5)),
        ),
        "reduce_concat": (3, 4, 6),
    },
    # Liu et al., 2019.
    "DARTS_V1": {
        "normal": (
            (("sep_conv_3x3", 1), ("sep_conv_3x3", 0)),
            (("skip_connect", 0), ("sep_conv_3x3", 1)),
            (("skip_connect", 0), ("sep_conv_3x3", 1)),
            (("sep_conv_3x3", 0), ("skip_connect", 2)),
        ),
        "normal_concat": (2, 3, 4, 5),
        "reduce": (
            (("max_pool_3x3", 0), ("max_pool_3x3", 1)),
            (("skip_connect", 2), ("max_pool_3x3", 0)),
            (("max_pool_3x3", 0), ("skip_connect", 2)),
            (("skip_connect", 2), ("avg_pool_3x3", 0)),
        ),
        "reduce_concat": (2, 3, 4, 5),
    },
    "DARTS_V2": {
        "normal": (
            (("sep_conv_3x3", 0), ("sep_conv_3x3", 1)),
            (("sep_conv_3x3", 0), ("sep_conv_3x3", 1)),
            (("sep_conv_3x3", 1), ("skip_connect", 0)),
            (("skip_connect", 0), ("dil_conv_3x3", 2)),
        ),
        "normal_concat": (2, 3, 4, 5),
        "reduce": (
            (("max_pool_3x3", 0), ("max_pool_3x3", 1)),
            (("skip_connect", 2), ("max_pool_3x3", 1)),
            (("max_pool_3x3", 0), ("skip_connect", 2)),
            (("skip_connect", 2), ("max_pool_3x3", 1)),
        ),
        "reduce_concat": (2, 3, 4, 5),
    },
    # Xie et al., 2019.
    "SNAS": {
        "normal": (
            (("sep_conv_3x3", 0), ("sep_conv_3x3", 1)),
            (("skip_connect", 0), ("dil_conv_3x3", 1)),
            (("skip_connect", 1), ("skip_connect", 0)),
            (("skip_connect", 0), ("sep_conv_3x3", 1)),
        ),
        "normal_concat": (2, 3, 4, 5),
        "reduce": (
            (("max_pool_3x3", 0), ("max_pool_3x3", 1)),
            (("max_pool_3x3", 1), ("skip_connect", 2)),
            (("skip_connect", 2), ("max_pool_3x3", 1)),
            (("max_pool_3x3", 0), ("dil_conv_5x5", 2)),
        ),
        "reduce_concat": (2, 3, 4, 5),
    },
    # P-DARTS: Chen et al., 2019.
    "PDARTS": {
        "normal": (
            (("skip_connect", 0), ("dil_conv_3x3", 1)),
            (("skip_connect", 0), ("sep_conv_3x3", 1)),
            (("sep_conv_3x3", 1), ("sep_conv_3x3", 3)),
            (("sep_conv_3x3", 0), ("dil_conv_5x5", 4)),
        ),
        "normal_concat": (2, 3, 4, 5),
        "reduce": (
            (("avg_pool_3x3", 0), ("sep_conv_5x5", 1)),
            (("sep_conv_3x3", 0), ("dil_conv_5x5", 2)),
            (("max_pool_3x3", 0), ("dil_conv_3x3", 1)),
            (("dil_conv_3x3", 1), ("dil_conv_5x5", 3)),
        ),
        "reduce_concat": (2, 3, 4, 5),
    },
    # PC-DARTS: Xu et al., 2020.
    "PC_DARTS_cifar": {
        "normal": (
            (("sep_conv_3x3", 1), ("skip_connect", 0)),
            (("sep_conv_3x3", 0), ("dil_conv_3x3", 1)),
            (("sep_conv_5x5", 0), ("sep_conv_3x3", 1)),
            (("avg_pool_3x3", 0), ("dil_conv_3x3", 1)),
        ),
        "normal_concat": (2, 3, 4, 5),
        "reduce": (
            (("sep_conv_5x5", 1), ("max_pool_3x3", 0)),
            (("sep_conv_5x5", 1), ("sep_conv_5x5", 2)),
            (("sep_conv_3x3", 0), ("sep_conv_3x3", 3)),
            (("sep_conv_3x3", 1), ("sep_conv_3x3", 2)),
        ),
        "reduce_concat": (2, 3, 4, 5),
    },
    "PC_DARTS_image": {
        "normal": (
            (("skip_connect", 1), ("sep_conv_3x3", 0)),
            (("sep_conv_3x3", 0), ("skip_connect", 1)),
            (("sep_conv_3x3", 1), ("sep_conv_3x3", 3)),
            (("sep_conv_3x3", 1), ("dil_conv_5x5", 4)),
        ),
        "normal_concat": (2, 3, 4, 5),
        "reduce": (
            (("sep_conv_3x3", 0), ("skip_connect", 1)),
            (("dil_conv_5x5", 2), ("max_pool_3x3", 1)),
            (("sep_conv_3x3", 2), ("sep_conv_3x3", 1)),
            (("sep_conv_5x5", 0), ("sep_conv_3x3", 3)),
        ),
        "reduce_concat": (2, 3, 4, 5),
    },
}

# name: (CIFAR-10, ImageNet)
PARAMETERS = {
    "ISTA_twostage": (3_316_726, 4_820_608),
    "ISTA_onestage": (3_363_598, 4_783_168),
    "ISTA_ImageNet": (4_017_862, 5_651_392),
    "NASNet_A": (3_830_950, 5_564_320),
    "AmoebaNet_A": (3_145_078, 4_627_360),
    "DARTS_V1": (3_169_414, 4_510_432),
    "DARTS_V2": (3_349_342, 4_718_752),
    "SNAS": (2_661_382, 3_939_328),
    "PDARTS": (3_433_798, 4_944_352),
    "PC_DARTS_cifar": (3_634_678, 5_270_560),
    "PC_DARTS_image": (3_721_510, 5_342_464),
}
