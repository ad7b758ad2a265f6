"""Faults that are really done to the program, and what a user had of it: `make faults`, minutes each part."""
