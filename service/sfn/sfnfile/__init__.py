"""The format's pure half: documents, names, locations, lineage, the version hint."""
