"""The engine `files`: PyIceberg plans, and Spark's own Parquet reader reads. It needs no jar."""
