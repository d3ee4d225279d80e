"""Read deletion vectors from their Puffin files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry
from pyiceberg.table.deletion_vector import PROPERTY_REFERENCED_DATA_FILE
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from sfn.errors import SfnError
from sfn.reader.table import to_unreadable

_KIND: Final = "deletion-vector-v1"
_MAGIC: Final = b"\xd1\xd3\x39\x64"


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The deleted rows of a data file.

    Attributes:
        positions: the positions of the rows, from 0.
        sequence: the sequence number of the commit that deleted them.
    """

    positions: BitMap64
    sequence: int


def read_deletion_vectors(io: FileIO, entries: Iterable[ManifestEntry], where: str) -> Mapping[str, DeletionVector]:
    """Return the deletion vectors by data file.

    PyIceberg does not reveal which vector of a Puffin file an entry refers to, so all vectors of a file with a live
    entry are used. This is correct, because a replaced vector has no row that its successor lacks.

    Args:
        where: the metadata file.

    Raises:
        Unreadable: Unsafe, Stale, NotPermitted, Unreachable or MalformedMetadata.
    """
    sequences: dict[str, int] = {}
    for entry in entries:
        file = entry.data_file
        if file.content is DataFileContent.POSITION_DELETES and file.file_format is FileFormat.PUFFIN:
            sequences[file.file_path] = max(entry.sequence_number or 0, sequences.get(file.file_path, 0))
    vectors: dict[str, DeletionVector] = {}
    try:
        for path, sequence in sequences.items():
            for data_file, positions in _in_file(io, path):
                known = vectors.get(data_file, DeletionVector(BitMap64(), 0))
                vectors[data_file] = DeletionVector(positions | known.positions, max(sequence, known.sequence))
    except (SfnError, MemoryError):
        raise
    except Exception as error:
        # PyIceberg and the drivers raise errors of any type.
        raise to_unreadable(where, error) from error
    return vectors


def _in_file(io: FileIO, path: str) -> Iterable[tuple[str, BitMap64]]:
    with io.new_input(path).open() as stream:
        puffin = PuffinFile(stream.read())
    for blob in puffin.footer.blobs:
        if blob.type == _KIND:
            yield blob.properties[PROPERTY_REFERENCED_DATA_FILE], decode_bitmap(puffin.get_blob_payload(blob))


def decode_bitmap(blob: bytes) -> BitMap64:
    """Decode a blob `deletion-vector-v1`: length, magic, a 64-bit Roaring bitmap in the portable format, CRC.

    Raises:
        ValueError: the blob is of another kind, or damaged.
    """
    length = int.from_bytes(blob[:4], "big")
    content, checksum = blob[4 : 4 + length], blob[4 + length : 8 + length]
    if content[:4] != _MAGIC or crc32(content) != int.from_bytes(checksum, "big"):
        raise ValueError("a deletion vector that is damaged")
    return BitMap64.deserialize(content[4:])
