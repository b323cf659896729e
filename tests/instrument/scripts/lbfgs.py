import torch

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
x, y = torch.randn(4, 3), torch.randn(4, 1)
for _ in range(2):
    def closure():
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
# recorded: for _ in range(2): | model | 2
