import torch
from torch import nn

netG, netD = nn.Sequential(nn.Linear(2, 4)), nn.Sequential(nn.Linear(4, 1))
optimizerD = torch.optim.Adam(netD.parameters())
optimizerG = torch.optim.Adam(netG.parameters())
for i in range(4):
    optimizerD.zero_grad()
    (netD(torch.randn(3, 4)).mean() - netD(netG(torch.randn(3, 2)).detach()).mean()).backward()
    optimizerD.step()
    if i % 2 == 0:
        optimizerG.zero_grad()
        netD(netG(torch.randn(3, 2))).mean().backward()
        optimizerG.step()
# recorded: for i in range(4): | netD, netG | 4
