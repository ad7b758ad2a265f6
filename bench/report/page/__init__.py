"""The comparison of methods as one HTML page, a single file that opens from disk.

`payload(tables, records_of, texts_of)` returns the page's data, and `pictures(tables, records_of)` its figures. `write`
puts both into one self-contained file. `bench.report.page.payload` describes the data.
"""

from bench.report.page.payload import payload
from bench.report.page.pictures import Pictures, pictures
from bench.report.page.render import write

__all__ = ["Pictures", "payload", "pictures", "write"]
