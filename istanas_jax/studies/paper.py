"""What the paper's tables say of the methods, to stand beside our results.

Yang et al., ISTA-NAS, NeurIPS 2020; times are of a GTX 1080Ti.
"""

# Table 1: (method, batch): memory in GB, days of search.
COST = {
    ("darts", 64): (9.1, 0.70),
    ("pc_darts", 256): (11.6, 0.14),
    ("ista", 64): (1.9, 0.15),
    ("ista", 256): (5.5, 0.05),
    ("ista", 512): (10.5, 0.03),
}

# Table 2: Kendall's tau of 8 seeds.
TAU = {"darts": -0.36, "pc_darts": -0.21, "ista": 0.43, "one_stage": 0.57}

# Table 3, CIFAR-10: test error in %, million parameters, GPU-days of search and of training.
CIFAR10 = {
    "darts_second_order": ("2.76 ± 0.09", "3.3", "4.0", "2.3"),
    "snas": ("2.85 ± 0.02", "2.8", "1.5", "2.2"),
    "pdarts": ("2.50", "3.4", "0.3", "2.9"),
    "nasp": ("2.83 ± 0.09", "3.3", "0.1", "-"),
    "pc_darts": ("2.57 ± 0.07", "3.6", "0.1", "3.1"),
    "ista": ("2.54 ± 0.05", "3.32", "0.05", "2.0"),
    "one_stage": ("2.36 ± 0.06", "3.37", "2.3 in all", ""),
}

# Table 4, ImageNet: top-1 and top-5 test error in %, million parameters, GPU-days of search and of
# training. Cells of published names: searched on CIFAR-10 unless the name says otherwise.
IMAGENET = {
    "DARTS_V2": ("26.7 (top 5: 8.7)", "4.7", "4.0", "3.6 x 8"),
    "SNAS": ("27.3 (top 5: 9.2)", "4.3", "1.5", "3.3 x 8"),
    "PDARTS": ("24.4 (top 5: 7.4)", "4.9", "0.3", "3.6 x 8"),
    "PC_DARTS_image": ("24.2 (top 5: 7.3)", "5.3", "3.8", "3.9 x 8"),
    "ISTA_onestage": ("25.1 (top 5: 7.7)", "4.78", "2.3", "3.4 x 8"),
    "one_stage": ("24.0 (top 5: 7.1)", "5.65", "4.2 x 8 in all", ""),
}
