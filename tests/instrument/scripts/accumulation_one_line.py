import torch
net = torch.nn.Linear(4, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i, batch in enumerate(torch.randn(6, 3, 4)):
    update = (i + 1) % 3 == 0
    if i == 1: continue
    net(batch).mean().backward()
    if update: optimizer.step(); optimizer.zero_grad()   # both
# recorded: for i, batch in enumerate(torch.randn(6, 3, 4)): | net | 2
