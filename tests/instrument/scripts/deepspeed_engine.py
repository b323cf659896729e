import deepspeed
import torch

engine, _, loader, _ = deepspeed.initialize(model=torch.nn.Linear(2, 1), config="ds.json")
for batch in loader:
    loss = engine(batch).mean()
    engine.backward(loss)
    engine.step()
# recorded: for batch in loader: | engine | never
