import torch


def train_step(model, batch, optimizer):
    '''One batch.'''
    optimizer.zero_grad()
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
losses = []
for batch in torch.randn(3, 2, 2):
    losses.append(train_step(net, batch, optimizer=optimizer))
# recorded: for batch in torch.randn(3, 2, 2): | net | 3
