"""The embedded model `tiny`: its files, and the code that made them from a corpus of questions."""
