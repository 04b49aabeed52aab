"""Compilers that tests build planners with: a test is skipped where there is none that runs."""

import shutil
import subprocess

import pytest


def needs(compiler):
    """Skip the test where a compiler is not there, or is there by name alone (a launcher without a toolchain)."""
    path = shutil.which(compiler)
    if path is None or subprocess.run([path, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no {compiler} that runs")
