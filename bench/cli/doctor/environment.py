"""Python and what is installed in it."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from bench.cli.doctor.finding import Finding, State
from bench.results import provenance

_LEAST = (3, 11)


def python() -> Iterator[Finding]:
    """The version of Python."""
    told = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= _LEAST:
        yield Finding("Python", State.OK, told)
    else:
        least = ".".join(map(str, _LEAST))
        yield Finding("Python", State.BAD, f"{told}, older than {least}", f"install Python {least} or newer")


def packages() -> Iterator[Finding]:
    """Packages that this one requires, by their metadata: nothing is imported."""
    from packaging.requirements import Requirement  # comes with transformers

    try:
        required = metadata.requires(provenance.DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        what = f"{provenance.DISTRIBUTION} itself is not installed, so its methods and tasks are not found"
        yield Finding("packages", State.BAD, what, "pip install -e . in the checkout, or pip install confbench")
        return
    lacking = []
    for requirement in map(Requirement, required):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = provenance.version_of(requirement.name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            lacking.append(f"{requirement.name}{requirement.specifier} (found {version or 'none'})")
    if lacking:
        names = " ".join(f"'{text.partition(' (')[0]}'" for text in lacking)
        yield Finding("packages", State.BAD, f"missing or too old: {', '.join(lacking)}", f"pip install {names}")
    else:
        code = provenance.code()
        yield Finding("packages", State.OK, f"{provenance.DISTRIBUTION} {code['version']} with all that it requires")


def other_bench() -> Iterator[Finding]:
    """Other packages of our names, and another command `bench` that a shell would find first."""
    owners = metadata.packages_distributions()
    others = {
        (name, owner) for name in provenance.CODE for owner in owners.get(name, ()) if owner != provenance.DISTRIBUTION
    }
    for name, owner in sorted(others):
        fix = f"pip uninstall {owner}, or install {provenance.DISTRIBUTION} into an environment of its own"
        yield Finding("names", State.BAD, f"the package {owner} also installs {name!r}", fix)
    home = Path(__file__).parents[3]
    for name in provenance.CODE:
        found = importlib.util.find_spec(name)
        place = Path(found.origin).parents[1] if found and found.origin else None
        if place is not None and place.resolve() != home.resolve():
            fix = f"start the command elsewhere, or rename {place / name}"
            yield Finding("names", State.BAD, f"{name!r} is found in {place}, not beside this package", fix)
    command = shutil.which("bench")
    ours = Path(sys.executable).parent / "bench"
    if command and ours.exists() and Path(command).resolve() != ours.resolve():
        yield Finding("names", State.NOTE, f"the shell's command bench is {command}, not {ours}", f"call {ours}")
    elif not others:
        yield Finding("names", State.OK, f"no other package is called {', '.join(provenance.CODE)}")
