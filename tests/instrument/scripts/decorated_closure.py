import functools
import torch

net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.ones(2, 1, 2):
    @functools.lru_cache(None)
    def forward(y=x):
        return net(y)

    forward().sum().backward()
    opt.step()
# recorded: for x in torch.ones(2, 1, 2): | net | 2
