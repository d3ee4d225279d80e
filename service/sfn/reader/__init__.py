"""Read tables from their directories, without the listener and without a catalog.

- `api`: the functions `resolve`, `history` and `read`, and their async twins. Start here.
- `resolve`: find a table's current metadata file. `Question` goes in, `Resolved` comes out.
- `lookup`, `history`: find the SFN document of a table, and the documents of its commits.
- `files`: `FileReader` and `FileSystem`, with `LocalFileSystem`, `InMemoryFileSystem` and, in `remote_files`, fsspec.
- `metadata`: check a metadata file. `AllowedLocations`: the places that a path in a file may point to.
- `table`, `scan`: the table for PyIceberg, and its rows for Arrow.
- `verify`, `inspect`, `avro_check`, `data_file`: check every file that a table's metadata names.
"""
