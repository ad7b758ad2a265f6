"""The comparison as one HTML file that opens from disk.

`payload(tables, records_of, texts_of)` and `pictures(tables, records_of)` return the data and the figures of tables;
`write` puts both into one self-contained file; `serve` shows that file on loopback. The data are described in
`bench/report/page/payload.py`.
"""

from bench.report.page.payload import payload
from bench.report.page.pictures import Pictures, pictures
from bench.report.page.render import write
from bench.report.page.serving import serve

__all__ = ["Pictures", "payload", "pictures", "serve", "write"]
