"""Files on a disk or in a bucket, and checkpoints in them.

Every file is replaced as a whole or grown piece by piece, and every checkpoint is checked to the
byte when it is read. Imports `devices`. Start with `files`, then `checkpoints`, the only module
that uses orbax.
"""
