import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data_loader = [(torch.randn(3, 4), torch.randn(3, 2)) for _ in range(3)]
for data, label in data_loader:
    output = model(data)
    loss = torch.nn.functional.mse_loss(output, label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
# recorded: for data, label in data_loader: | model | 3
