"""The debugger inside frameworks that own the loop: vLLM, SGLang, the Trainer of transformers, Lightning. Imported by their users alone."""
