"""What is fuzzed; and bytes that a fuzzer makes -> text, files that are nearly right, JSON values with odd parts."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 10, 2**31, 2**63, 2**70, -(2**64), 10**400, 0.0, 0.5, -1.5, 1e308, -1e-308,
    math.nan, math.inf, -math.inf, "", " ", "a", "b", "A", "yes", "0", "-1", "1e999", "\0", "\n", "\x1b[2J",
    "\u202ex", "\ud800", "é", "\U0001f600", "/", "../../x", "--", "{", "{text}", "{0}", "%s", "{{ x }}", "\\", '"',
    "a" * 300, [], [[]], {}, [None], ["a", "b"], ["a", "a"], [1, 2], {"": ""}, {"a": None}, {"a": {"b": [1]}}, b"x",
)  # fmt: skip
"""Values that something may choke on."""
_CHANGES = 20
"""Changes of one value, at most."""
RAW, EDITS = b"\0", b"\1"
"""First byte of an input: the rest is the input itself, or says how a valid one is changed."""


@dataclass(frozen=True)
class Target:
    prepare: Callable[[Path], Callable[[bytes], object]]
    """From an empty folder to the call that gets the inputs."""
    seeds: Callable[[], Sequence[bytes]]
    """Inputs to begin with."""
    valid: bool = True
    """Whether the parser takes all of these."""


def simple(call: Callable[[bytes], object], *seeds: bytes, valid: bool = True) -> Target:
    return Target(lambda _: call, lambda: seeds, valid)


def text(data: bytes) -> str:
    """The bytes as text; what is no UTF-8 becomes half surrogate pairs, as in names of files."""
    return data.decode("utf-8", "surrogateescape")


def edited(value: Any, data: bytes) -> Any:
    """A JSON value with parts replaced, taken away or doubled: three bytes for each change."""
    value = copy.deepcopy(value)
    for i in range(0, min(len(data) - 2, 3 * _CHANGES), 3):
        where, what, odd = data[i : i + 3]
        places = list(_places(value))
        if not places:
            return ODD[odd % len(ODD)]
        holder, key = places[where % len(places)]
        if what % 8 == 0 and isinstance(holder, dict):
            del holder[key]
        elif what % 8 == 1 and isinstance(holder, dict):
            holder[str(ODD[odd % len(ODD)])[:20]] = holder[key]
        elif what % 8 == 2 and i == 0:  # once: the doubled would be doubled
            holder[key] = [copy.deepcopy(holder[key])] * (odd % 40)
        elif what % 8 == 3 and isinstance(holder[key], str):
            at = odd % (len(holder[key]) + 1)
            holder[key] = holder[key][:at] + chr(data[i]) + holder[key][at:]
        else:
            holder[key] = copy.deepcopy(ODD[odd % len(ODD)])
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def document(data: bytes, valid: Any) -> bytes:
    """A JSON text: the bytes themselves, or a valid value with changes."""
    if data[:1] == EDITS:
        return json.dumps(edited(valid, data[1:]), default=repr).encode("utf-8", "surrogateescape")
    return data[1:]


def patched(data: bytes, valid: bytes) -> bytes:
    """A binary file: the bytes themselves, or a valid one in which every three of them put a byte somewhere."""
    if data[:1] != EDITS:
        return data[1:]
    content = bytearray(valid)
    for i in range(1, len(data) - 2, 3):
        at = int.from_bytes(data[i : i + 2])
        if at == 0xFFFF:
            del content[data[i + 2] * len(content) // 256 :]
        if content:
            # from the end as often as from the beginning, for there the descriptions of formats are
            content[at % len(content) if at % 2 else -1 - at // 2 % len(content)] = data[i + 2]
    return bytes(content)
