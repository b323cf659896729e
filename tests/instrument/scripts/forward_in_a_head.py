import torch

model = torch.nn.Linear(2, 2)
x = torch.ones(1, 2)
count = 0
while (out := model(x)).sum() < 1e9 and count < 3:
    x, count = out, count + 1
print([model(v).shape for v in torch.ones(2, 1, 2)])
y = model(x); print(y.shape)
# recorded: while (out := model(x)).sum() < 1e9 and count < 3: | model | 1
