import torch
from torch import nn

net = nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def train_step(model, batch):
    '''Called by another file, once a batch.'''
    if batch is None:
        return None
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


if __name__ == "__main__":
    step = globals()["train_" + "step"]
    step(net, None), step(net, torch.ones(1, 2)), step(net, torch.ones(1, 2))
# recorded: def train_step(model, batch): | model | 2
