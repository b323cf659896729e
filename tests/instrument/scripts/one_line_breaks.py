import torch
model = torch.nn.Linear(2, 2)
for x in torch.ones(9, 2): y = model(x); break
else: print("never")
# recorded: for x in torch.ones(9, 2): y = model(x); break | model | 1
