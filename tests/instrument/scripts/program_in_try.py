try:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in torch.randn(2, 2, 3):
        model(x).sum().backward()
        optimizer.step()
except KeyboardInterrupt:
    pass
# recorded: for x in torch.randn(2, 2, 3): | model | 2
