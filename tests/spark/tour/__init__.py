"""The life of a table in Spark SQL: told step by step on a terminal, and tried as tests."""
