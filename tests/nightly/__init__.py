"""Everything that takes long, one part after the other, and the page that says what came of it: `make nightly`."""
