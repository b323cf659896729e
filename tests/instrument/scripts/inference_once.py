import torch

model = torch.nn.Linear(2, 2)
model.eval()
x = torch.ones(1, 2)
with torch.no_grad():
    out = model(x)
    again = model(out)
print(out.shape)
# recorded: out = model(x) | model | 1
