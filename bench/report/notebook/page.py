"""The page that was written, as a path that a notebook shows as the page itself."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    _Path = Path
else:
    _Path = type(Path())  # before Python 3.12 `Path` itself can't be extended


class Page(_Path):
    """Path of a written page."""

    def _repr_html_(self) -> str | None:
        """A link and the page in a frame, addressed from the notebook's folder, so that no machine's path is shown."""
        if not self.is_file():
            return None
        address = escape(quote(Path(os.path.relpath(self)).as_posix()))
        return (
            f'<p><a href="{address}" target="_blank">{escape(self.name)}</a></p>'
            f'<iframe src="{address}" width="100%" height="640" style="border:0"></iframe>'
        )
