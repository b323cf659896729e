"""A directory that `msprobe run` puts on PYTHONPATH, so that every Python process below it finds its sitecustomize."""
