import torch

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)


def closure():
    optimizer.zero_grad()
    loss = model(torch.ones(2, 3)).pow(2).mean()
    loss.backward()
    return loss


for _ in range(2):
    optimizer.step(closure)
# recorded: for _ in range(2): | model | 2
