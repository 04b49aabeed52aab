"""Readers and writers of foreign dumps and of the native document."""
