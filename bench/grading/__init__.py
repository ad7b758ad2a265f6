"""Grading of answers: parsing of option letters, normalisation of open answers, and judges that compare them."""
