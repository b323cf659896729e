import torch

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
accumulation_steps = 2
batches = torch.randn(6, 3, 4)
for i, batch in enumerate(batches):
    loss = net(batch).mean() / accumulation_steps
    loss.backward()
    if (i + 1) % accumulation_steps == 0 or i + 1 == len(batches):
        optimizer.step()
        optimizer.zero_grad()
# recorded: for i, batch in enumerate(batches): | net | 3
