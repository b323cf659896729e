"""The dump directory as a contract: names, layout, and reading and writing of its files without any framework."""
