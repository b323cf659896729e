import torch

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
iterator = iter(torch.ones(3, 1, 2))
while True:
    try:
        x = next(iterator)
    except StopIteration:
        break
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
else:
    print("not reached")
# recorded: while True: | model | 3
