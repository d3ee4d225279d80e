"""The report of an audit: a table of its own, with one row for each table and run. What writes it runs on Spark."""
