"""Differential reading: odd tables, which Iceberg's own library writes and reads, are read by every engine of ours.

`make fuzz-readers N=2000` or `python -m tests.spark.differential [N] [--from SEED] [--show SEED]`.
"""
