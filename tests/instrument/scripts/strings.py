import torch
TEXT = '''
for data in loader:
    model(data)  # +msprobe 0000
''' ; LONG = \
    "continued"
model = torch.nn.Linear(2, 2)
for x in torch.ones(3, 1, 2):
    y = model(
        x  # inside
    ); z = f"{y.sum():.3f}" \
        "tail"
    if x.sum() > 100 and \
            y.sum() > 0: continue
    print('''a
b''')
# recorded: for x in torch.ones(3, 1, 2): | model | 3
