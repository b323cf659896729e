import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for number, x in enumerate(torch.randn(20, 2, 3)):
    if number == 0:
        continue
    if number == 2: continue  # on one line
    y = model(x)
    if number == 4:
        print("left"); continue
    for _ in range(2):
        if number:
            continue
        break
    try:
        if number == 5:
            raise ValueError(number)
        y.sum().backward()
    except ValueError:
        continue
    finally:
        optimizer.zero_grad()
    optimizer.step()
    if number == 8:
        break
# recorded: for number, x in enumerate(torch.randn(20, 2, 3)): | model | 7
