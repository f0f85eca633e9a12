"""A GPU as the emulation is one: launches on arrays of NumPy."""

import torch

from keras_ln_kernels import gpu


class Real:
    """A GPU by the driver, with the method `launch` of `emulated.Emulation`."""

    def __init__(self):
        torch.zeros(1, device="cuda")
        self.gpu = gpu.Gpu()

    def launch(self, plan, arrays, batch, steps, **options):
        """A launch on arrays of NumPy."""
        tensors = {
            name: torch.from_numpy(a).cuda()
            for name, a in arrays.items()
            if a is not None
        }
        for name, size in self.gpu.workspace(plan, 0, batch).items():
            tensors[name] = torch.empty(size, dtype=torch.uint8, device="cuda")
        places = {name: t.data_ptr() for name, t in tensors.items()}
        stream = torch.cuda.current_stream().cuda_stream
        self.gpu.launch(
            plan, places, batch, steps, device=0, stream=stream, **options
        )
        torch.cuda.synchronize()
        for name, a in arrays.items():
            if a is not None:
                a[...] = tensors[name].cpu().numpy()
