import torch


def forward(model, x):
    return model(x)


def loss_of(model, x):
    return forward(model, x).mean()


def update(model, optimizer, x):
    loss = loss_of(model, x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(network, xs):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for x in xs:
        update(network, optimizer, x)


train(torch.nn.Linear(2, 2), torch.ones(2, 1, 2))
# recorded: for x in xs: | network | 2
