"""Storage: the content-addressed store, atomic file writes, strict JSON decoding, locks and processes."""
