"""`msprobe run`: records an unmodified script; finds its models and its steps."""
