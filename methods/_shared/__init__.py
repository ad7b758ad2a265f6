"""Code shared by several methods; not a method itself."""
