"""What some of the scripts import."""
import torch


def build_model(width):
    return torch.nn.Linear(width, 1)


def compute_loss(model, x):
    return model(x).mean()


def data(count, width):
    return torch.ones(count, 1, width)
