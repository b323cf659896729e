import torch

net = torch.nn.Sequential(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def update(*given):
    forward, x = given
    optimizer.zero_grad()
    forward(x).sum().backward()
    optimizer.step()


for batch in torch.randn(2, 2, 3):
    update(net, batch)
# recorded: for batch in torch.randn(2, 2, 3): | net | 2
