"""Code that at least two methods share; not a method itself."""
