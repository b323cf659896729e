"""What torch.distributed does during a window: collectives, sends and receives, and gradients that are reduced over the ranks."""
