"""Parsers of whatever comes from outside, fed with what nobody meant: `make fuzz`, minutes; bugs become unit tests."""
