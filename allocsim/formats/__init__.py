"""Provide readers that several systems share: flatbuffers, protobufs, Python text, and placing.

A file format that only one system uses is read in the package of that system (`allocsim.systems`).

This package imports no module of `allocsim.systems`.
"""
