import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
pending, every = 0, 2
for batch in torch.randn(6, 3, 4):
    (net(batch).mean() / every).backward()
    pending += 1
    if pending < every:
        print("more")
    else:
        optimizer.step()
        optimizer.zero_grad()
        pending = 0
# recorded: for batch in torch.randn(6, 3, 4): | net | 3
