"""The life of a table in Spark SQL, step by step: printed on a terminal by `make tour`, and run as tests."""
