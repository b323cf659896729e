import torch

model = torch.nn.Linear(4, 1)
opt = torch.optim.Adam(model.parameters())
for step in range(2):
    for micro in range(3):
        model(torch.randn(2, 4)).mean().backward()
    opt.step()
    opt.zero_grad()
# recorded: for step in range(2): | model | 2
