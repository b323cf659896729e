import torch

model = torch.nn.Linear(4, 1)
opt = torch.optim.Adam(model.parameters())
updates = 0
for i in range(100):
    model(torch.randn(2, 4)).mean().backward()
    if i % 2 == 1:
        opt.step()
        opt.zero_grad()
        updates += 1
        if updates == 3:
            break
# recorded: for i in range(100): | model | 3
