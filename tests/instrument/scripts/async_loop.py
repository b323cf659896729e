import asyncio
import torch

model = torch.nn.Linear(2, 2)


async def batches():
    for x in torch.ones(2, 1, 2):
        yield x


async def serve():
    async for x in batches():
        y = model(x)
        await asyncio.sleep(0)
    return y


asyncio.run(serve())
# recorded: async for x in batches(): | model | 2
