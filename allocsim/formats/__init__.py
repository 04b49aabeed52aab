"""What the readers of several systems share: flatbuffers, protobufs, Python as text, and placing.

What one system alone writes is read in its room (`allocsim.systems`).

What this package does not see: any system.
"""
