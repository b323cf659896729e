import torch

model = torch.compile(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.ones(2, 1, 2):
    model(x).sum().backward()
    optimizer.step()
# recorded: for x in torch.ones(2, 1, 2): | model | 2 slow
