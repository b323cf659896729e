import torch
from transformers import Trainer, TrainingArguments


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"x": torch.ones(2) * index, "labels": torch.tensor(1.0)}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 1)

    def forward(self, x, labels):
        return {"loss": (self.fc(x).squeeze(-1) - labels).pow(2).mean()}


class MyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


def main():
    arguments = TrainingArguments("out", max_steps=2, per_device_train_batch_size=2, use_cpu=True, report_to=[], save_strategy="no")
    trainer = MyTrainer(
        model=Net(),
        args=arguments,
        train_dataset=Data(),
    )
    trainer.train()


if __name__ == "__main__":
    main()
# recorded: trainer = MyTrainer( | | 2 slow
