import torch

for width in (2, 3):
    model = torch.nn.Linear(width, 1)
    model.train()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, width)).sum().backward()
    opt.step()
# recorded: for width in (2, 3): | model | 2
