"""Scripts in the form in which transformers, Lightning, accelerate and torch.distributed document training and inference."""

from __future__ import annotations

GENERATE = """
from transformers import LlamaConfig, LlamaForCausalLM
sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, vocab_size=32)
model = LlamaForCausalLM(LlamaConfig(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=None)).eval()
tokens = model.generate(torch.tensor([[1, 5, 7]]), max_new_tokens=3, do_sample=True)
print(tokens.tolist())
finish(model)
"""

TRAINER = """
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, vocab_size=32)
model = LlamaForCausalLM(LlamaConfig(**sizes))
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        ids = torch.arange(6) + index
        return {"input_ids": ids, "labels": ids}
arguments = TrainingArguments(
    "out", max_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=2, logging_steps=1, report_to=[], save_strategy="no",
    use_cpu=True, disable_tqdm=True, eval_strategy="steps", eval_steps=1,
)
trainer = Trainer(model, arguments, train_dataset=Data(), eval_dataset=Data())
trainer.train()
for line in trainer.state.log_history:
    for name in ("loss", "grad_norm", "eval_loss"):
        if name in line:
            print(name, float(line[name]).hex())
finish(model)
"""

LIGHTNING = """
import logging, warnings
warnings.simplefilter("ignore")
import pytorch_lightning as lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.criterion = Net(), nn.CrossEntropyLoss()
    def training_step(self, batch, index):
        x, y = batch
        loss = self.criterion(self.net(x), y)
        show(loss)
        return loss
    def validation_step(self, batch, index):
        x, y = batch
        show(self.criterion(self.net(x), y))
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,))), 4)
module = Module()
trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                            enable_model_summary=False, num_sanity_val_steps=1)
trainer.fit(module, data, data)
finish(module)
"""

ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randint(0, 2, (16,))), 4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for x, y in data:
    with accelerator.accumulate(model):
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        show(loss)
finish(accelerator.unwrap_model(model))
"""

DDP = """
import os
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
lines = []
for x, y in batches(3):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    lines.append(loss.item().hex())
with open(f"losses{rank}.txt", "w") as file:
    file.write(" ".join(lines))
del model  # a reducer must not be the last to hold the group: see leave_group in tests/integrations/ranks.py
dist.destroy_process_group()
"""

FSDP = """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
lines = []
for x, y in batches(3):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    lines.append(loss.item().hex())
with open(f"losses{rank}.txt", "w") as file:
    file.write(" ".join(lines))
dist.destroy_process_group()
"""
