"""Cells of a buffer as half-open ranges of bytes."""


def ranges(cells, per_byte):
    """Return the bytes that hold the cells, as sorted half-open ranges [[first, end], ...]."""
    found = []
    for byte in sorted({cell // per_byte for cell in cells}):
        if found and found[-1][1] == byte:
            found[-1][1] = byte + 1
        else:
            found.append([byte, byte + 1])
    return found
