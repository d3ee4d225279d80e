"""Each engine on Spark, of tables with everything that a table can have: what it reads, and what it refuses."""
