import torch


def main():
    model = torch.nn.Linear(2, 2)

    def step(x):
        return model(x)

    other = lambda x: model(x)
    total = 0
    for x in torch.ones(3, 2):
        if (total > 10 and
                x.sum() > 0): continue
        y = step(x)
        if (y.sum() > 100 or
                total == 1): total = 7; continue
        total += 1
        other(x)
    return total


main()
# recorded: for x in torch.ones(3, 2): | model | 3
