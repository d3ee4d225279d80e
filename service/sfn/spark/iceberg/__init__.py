"""The engine `iceberg`: Iceberg's own runtime on the JVM, which asks a facade where the table is."""
