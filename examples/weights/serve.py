"""Serves the network, tensor-parallel, with the newest weights that the trainer has published: between two requests
they are refreshed in place.

torchrun --nproc-per-node 2 examples/weights/serve.py
"""

import os
import time

import polyduct.torch
import torch
import torch.distributed as dist
from network import digits, network
from torch.distributed.tensor import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
model = network()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
pixels, labels = digits(training=False)
last = int(os.environ.get("LAST", "199"))
version = -1
while version < last:
    new = polyduct.torch.refresh("pipe:weights", model)
    if new is not None:
        version = new
        with torch.no_grad():
            right = (model(pixels).argmax(1) == labels).float().mean().item()
        if dist.get_rank() == 0:
            print(f"server: weights of step {version}, {right:.0%} right", flush=True)
    else:
        time.sleep(0.01)  # requests would be served here
dist.barrier()  # gloo's threads let go of the last tensors: one that held them when Python ends would abort
polyduct.torch.close("pipe:weights")
dist.destroy_process_group()
