"""Pages about runs: one HTML file each, that opens from a disk and needs nothing else."""
