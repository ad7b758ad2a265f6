"""Lines of `bench --version`."""

from __future__ import annotations

import platform

from bench.results import provenance

_BESIDE = ("torch", "transformers")
"""Packages that decide numbers more than others."""
_SHORT = 12
"""Digits of a commit."""


def lines() -> list[str]:
    """Version and commit of this package, then the versions of Python, torch and transformers; none is imported."""
    code, packages = provenance.code(), provenance.packages()
    changed = ", with changes" if code["dirty"] else ""
    commit = f" (commit {code['git_sha'][:_SHORT]}{changed})" if code["git_sha"] else ""
    found = [f"{name} {packages.get(name, 'is not installed')}" for name in _BESIDE]
    return [f"{provenance.DISTRIBUTION} {code['version'] or 'not installed'}{commit}", *found,
            f"Python {platform.python_version()}"]  # fmt: skip
