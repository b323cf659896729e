import torch
from helper import build_model, compute_loss, data

net = build_model(4)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for x in data(3, 4):
    optimizer.zero_grad()
    compute_loss(net, x).backward()
    optimizer.step()
# recorded: for x in data(3, 4): | net | 3
