"""The pure part of the SFN file format: documents, names, locations, order of metadata files, version hints.

    document        `Document`: the SFN document, read and written
    naming          `Naming` and `FileLayout`: what SFN files are called, and which folder they lie in
    locations       one spelling for each location; checks of locations from outside; which of two metadata files is
                    newer (`compare_metadata`); decompresses metadata files
    version_hint    the content of `version-hint.text`

Start reading with `document.Document`, then `naming.FileLayout`. The specification is `docs/reference/format.md`.
"""
