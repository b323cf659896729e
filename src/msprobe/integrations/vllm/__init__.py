"""vLLM: a plugin that records every engine process without a patch."""
