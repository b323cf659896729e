import argparse

import torch
from helper import build_model, data


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    net = build_model(4)
    net.to("cpu")
    optimizer = torch.optim.SGD(net.parameters(), args.lr)
    for x in data(2, 4):
        loss = net(x).mean()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
# recorded: for x in data(2, 4): | net | 2
