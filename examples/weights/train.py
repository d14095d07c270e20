"""Trains the network, sharded by FSDP2, and has servers get its weights while it does.

torchrun --nproc-per-node 4 examples/weights/train.py
"""

import os

import polyduct.torch
import torch
import torch.distributed as dist
from network import digits, network
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import init_device_mesh

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = network()
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
pixels, labels = digits(training=True)
rounds = int(os.environ.get("ROUNDS", "200"))
for step in range(rounds):
    batch = torch.randint(len(labels), (64,))[rank::world]
    loss = torch.nn.functional.cross_entropy(model(pixels[batch]), labels[batch])
    loss.backward()
    optimiser.step()
    optimiser.zero_grad()
    if step % 10 == 0 or step == rounds - 1:
        polyduct.torch.publish("pipe:weights", model, step=step)
        if rank == 0:
            print(f"trainer: step {step}, loss {loss.item():.2f}", flush=True)
# The last weights stay there until this ends.
input() if rank == 0 and os.environ.get("STAY") else None
dist.barrier()
polyduct.torch.close("pipe:weights")
dist.destroy_process_group()
