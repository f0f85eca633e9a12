"""A GPU as the emulation is one: launches on arrays of NumPy, and times."""

import statistics

import torch

from keras_ln_kernels import gpu


class Real:
    """A GPU by the driver, with the methods of `emulated.Emulation`."""

    def __init__(self, images):
        torch.zeros(1, device="cuda")
        self.gpu = gpu.Gpu(images=images)
        self.name = torch.cuda.get_device_name()

    def launch(self, plan, arrays, batch, steps, **options):
        """A launch on arrays of NumPy, and `again`, the same without them."""
        tensors = {
            name: torch.from_numpy(a).cuda()
            for name, a in arrays.items()
            if a is not None
        }
        for name, size in self.gpu.workspace(plan, 0, batch).items():
            tensors[name] = torch.empty(size, dtype=torch.uint8, device="cuda")
        places = {name: t.data_ptr() for name, t in tensors.items()}

        def again():
            stream = torch.cuda.current_stream().cuda_stream
            self.gpu.launch(
                plan, places, batch, steps, device=0, stream=stream, **options
            )

        self.again, self.kept = again, tensors
        again()
        torch.cuda.synchronize()
        for name, a in arrays.items():
            if a is not None:
                a[...] = tensors[name].cpu().numpy()

    def milliseconds(self, call, times=20):
        """Of one call among calls back to back, by events; of five medians."""
        for _ in range(3):
            call()
        found = []
        for _ in range(5):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
            start.record()
            for _ in range(times):
                call()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) / times)
        return statistics.median(found)
