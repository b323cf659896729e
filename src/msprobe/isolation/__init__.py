"""Finds the module, or the code between two modules, that computes otherwise than in a golden run, by giving it golden inputs."""
