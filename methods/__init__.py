"""One module or package per confidence method; dropping a file into this folder registers it."""
