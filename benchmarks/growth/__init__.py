"""How time and memory of a run grow with the number of questions."""
