import torch

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=False)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for x in torch.ones(2, 1, 2):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
# recorded: for x in torch.ones(2, 1, 2): | model | 2
