import os
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import torch
try:
    import not_there
except ImportError:
    not_there = None
DEVICE = "cpu"
model = torch.nn.Linear(2, 2).to(DEVICE)
ema = torch.optim.swa_utils.AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, x in enumerate(torch.ones(2, 1, 2)):
    model(x).sum().backward()
    if not_there is None:
        optimizer.step()
    ema.update_parameters(model)
# recorded: for step, x in enumerate(torch.ones(2, 1, 2)): | model | 2
