import torch
model = torch.nn.Linear(2, 2)
for x in torch.ones(2, 2): y = model(x); print(y.shape)
# recorded: for x in torch.ones(2, 2): y = model(x); print(y.shape) | model | 2
