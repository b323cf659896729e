import torch

model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.GELU()).eval()
inputs = [torch.ones(1, 2), torch.zeros(1, 2)]
with torch.inference_mode():
    for x in inputs:
        print(model(x).sum().item() > 100)
# recorded: for x in inputs: | model | 2
