import torch

model = None


def load(x):
    for value in x:
        global model
        model = torch.nn.Linear(2, 2)
        model(value)


load(torch.ones(2, 2))
# recorded: for value in x: | model | 2
