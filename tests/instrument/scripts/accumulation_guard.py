import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i, batch in enumerate(torch.randn(6, 3, 4)):
    (net(batch).mean() / 2).backward()
    if (i + 1) % 2 != 0: continue
    optimizer.step()
    optimizer.zero_grad()
    if i == 3:
        break
# recorded: for i, batch in enumerate(torch.randn(6, 3, 4)): | net | 2
