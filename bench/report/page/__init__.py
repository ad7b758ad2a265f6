"""The comparison as one HTML file that opens from disk: `write(path, payload(tables, records_of, asked))`.

`payload` is a pure function of tables; `write` puts it into one self-contained file; `serve` shows that file on
loopback. What the file holds is described in `bench.report.page.build`.
"""

from bench.report.page.build import payload
from bench.report.page.render import write
from bench.report.page.serving import serve

__all__ = ["payload", "serve", "write"]
