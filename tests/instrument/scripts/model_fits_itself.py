import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x)

    def fit(self, batches):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        for x in batches:
            optimizer.zero_grad()
            self(x).sum().backward()
            optimizer.step()


Net().fit(torch.randn(2, 2, 3))
# recorded: for x in batches: | self | 2
