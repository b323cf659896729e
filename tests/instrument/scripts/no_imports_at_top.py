# A script whose imports are in its program.
if __name__ == "__main__":
    import torch
    model = torch.nn.Linear(2, 2)
    for x in torch.ones(2, 1, 2):
        model(x)
# recorded: for x in torch.ones(2, 1, 2): | model | 2
