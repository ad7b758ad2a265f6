"""Training of the embedded model `tiny` from a corpus of questions; its files lie in `bench/model/tiny`."""
