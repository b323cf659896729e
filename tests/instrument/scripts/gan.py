import torch
from torch import nn, optim

netG = nn.Sequential(nn.Linear(2, 4), nn.Tanh())
netD = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters())
optimizerG = optim.Adam(netG.parameters())
for real in torch.randn(2, 5, 4):
    netD.zero_grad()
    fake = netG(torch.randn(5, 2))
    loss = criterion(netD(real), torch.ones(5, 1)) + criterion(netD(fake.detach()), torch.zeros(5, 1))
    loss.backward()
    optimizerD.step()
    netG.zero_grad()
    criterion(netD(fake), torch.ones(5, 1)).backward()
    optimizerG.step()
# recorded: for real in torch.randn(2, 5, 4): | netG, netD | 2
