import torch

model = torch.nn.Linear(2, 2)
jobs = [("run", torch.ones(1, 2)), ("run", torch.zeros(1, 2))]
for job in jobs:
    match job:
        case ("run", x) if (y := model(x)) is not None:
            print(y.shape)
        case ("skip", _): continue
        case _:
            break
# recorded: for job in jobs: | model | 2
