"""Readers that several systems share: flatbuffers, protobufs, Python as text, and placing.

A file format of one system alone is read in the room of that system (`allocsim.systems`).

What this package does not see: it imports no system.
"""
