import torch


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.Adam(model.parameters())

    def training_step(self, batch):
        loss = self.model(batch).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self, epochs=2):
        for epoch in range(epochs):
            for batch in self.loader:
                loss = self.training_step(batch)
        return loss


Trainer(torch.nn.Linear(3, 1), list(torch.randn(2, 2, 3))).fit()
# recorded: for batch in self.loader: | self.model | 4
