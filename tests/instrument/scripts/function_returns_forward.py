import torch

class Serving:
    def __init__(self, model):
        self.model = model.eval()

    @torch.no_grad()
    def handle(self, request, scale=1.0):
        if request is None: return None
        if scale == 1.0:
            return self.model(request)  # as it is
        return (self.model(request) * scale,
                scale)


if __name__ == "__main__":
    serving = Serving(torch.nn.Linear(2, 2))
    run = getattr(serving, "hand" + "le")
    print(run(torch.ones(1, 2)).shape, run(torch.ones(1, 2), 2.0)[1], run(None))
# recorded: def handle(self, request, scale=1.0): | self.model | 2
