import torch

model = torch.nn.Linear(2, 2)


def search(xs):
    for x in xs:
        if x.sum() > 3:
            return model(x), "found"
        if x.sum() > 2:
            return
        model(x)


print(search(torch.ones(1, 2)), search(torch.ones(2, 2) * 2)[1])
# recorded: for x in xs: | model | 2
