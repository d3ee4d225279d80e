"""The Python data sources `sfn` and `sfn-log`: reading by directory where Spark has no jar of Iceberg's.

Spark finds them by the modules `pyspark_sfn` and `pyspark_sfn_log`, which lie beside this package and import it only
once they are used.
"""
