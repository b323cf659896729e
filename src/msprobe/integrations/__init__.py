"""The debugger inside frameworks that own the loop: vLLM, SGLang, the Trainer of transformers, Lightning. Each is imported by its users alone."""
