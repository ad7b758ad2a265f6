"""Pages of the site that lie elsewhere in the repository, where code writes them or where people look for them."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "benchmarks/cost_model/figures.md": "from/cost-model.md",
    "benchmarks/growth/growth.svg": "from/growth.svg",
    "benchmarks/peers/lm_polygraph.md": "from/lm-polygraph.md",
    "results/README.md": "from/leaderboard.md",
    "bench/DESIGN.md": "from/design.md",
    "CONTRIBUTING.md": "from/contributing.md",
    "CHANGELOG.md": "from/changelog.md",
    **{
        f"results/analyses/{path.name}": f"from/analyses/{path.name}"
        for path in sorted((ROOT / "results" / "analyses").glob("*--*"))
    },
}
"""File of the repository -> page or picture of the site."""
LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: Any) -> Files:
    """Add the files from elsewhere."""
    for source, place in ELSEWHERE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links, which hold in the repository, hold in the site."""
    here = page.file.src_uri
    source = next((source for source, place in ELSEWHERE.items() if place == here), f"docs/{here}")

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        place = ELSEWHERE.get(target, target.removeprefix("docs/"))
        return f"{link[1]}{posixpath.relpath(place, posixpath.dirname(here) or '.')}{link[3] or ''}{link[4]}"

    return LINK.sub(moved, markdown)
