"""Networks and training steps in PyTorch, as rivals of bnlab's: eager, compiled, and under DistributedDataParallel with
BatchNorm2d, SyncBatchNorm or apex's. Their settings are PyTorch's best: fused SGD, gradients as views of their buckets,
ReLU in place, no broadcast of buffers, cuDNN's benchmark mode; TF32 is off, as in bnlab.
"""
import multiprocessing
import os
import socket
import time

CLASSES = 5  # of the task shapes


def conv_norm(into, out, kernel=3, stride=1, dilation=1, relu=True):
    from torch import nn

    conv = nn.Conv2d(into, out, kernel, stride, dilation * (kernel // 2), dilation, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), *([nn.ReLU(inplace=True)] if relu else []))


def unet(base=16, levels=3):
    import torch
    from torch import nn
    from torch.nn.functional import interpolate, max_pool2d

    def block(into, out):
        return nn.Sequential(conv_norm(into, out), conv_norm(out, out))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [base << level for level in range(levels)]
            self.down = nn.ModuleList(block(i, o) for i, o in zip([3, *widths], widths))
            self.up = nn.ModuleList(block(i + o, o) for i, o in zip(widths[:0:-1], widths[-2::-1]))
            self.head = nn.Conv2d(base, CLASSES, 1)

        def forward(self, x):
            skips = []
            for down in self.down[:-1]:
                skips.append(down(x))
                x = max_pool2d(skips[-1], 2)
            x = self.down[-1](x)
            for up in self.up:
                x = up(torch.cat([interpolate(x, scale_factor=2), skips.pop()], 1))
            return [self.head(x)]

    return UNet()


def pspnet(width=64, depth=50):
    """On a resnet of depth 18 or 50 at output stride 8, with the auxiliary head, as bnlab's."""
    from torch import cat, nn
    from torch.nn.functional import adaptive_avg_pool2d, interpolate

    expansion = 4 if depth == 50 else 1

    class Block(nn.Module):
        def __init__(self, into, inner, stride, dilation):
            super().__init__()
            out = inner * expansion
            if expansion == 4:
                parts = [conv_norm(into, inner, 1), conv_norm(inner, inner, 3, stride, dilation),
                         conv_norm(inner, out, 1, relu=False)]
            else:
                parts = [conv_norm(into, inner, 3, stride, dilation), conv_norm(inner, out, 3, 1, dilation, relu=False)]
            self.body = nn.Sequential(*parts)
            self.skip = conv_norm(into, out, 1, stride, relu=False) if stride != 1 or into != out else nn.Identity()
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            return self.relu(self.body(x).add_(self.skip(x)))

    def stage(into, inner, blocks, stride, first, dilation):
        rest = (Block(inner * expansion, inner, 1, dilation) for _ in range(blocks - 1))
        return nn.Sequential(Block(into, inner, stride, first), *rest)

    class PspNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(conv_norm(3, width, 7, 2), nn.MaxPool2d(3, 2, 1))
            into = [width, *(expansion * width << s for s in range(3))]
            shapes = zip(into, (width << s for s in range(4)), (3, 4, 6, 3) if depth == 50 else (2, 2, 2, 2),
                         (1, 2, 1, 1), (1, 1, 1, 2), (1, 1, 2, 4))
            self.stages = nn.ModuleList(stage(*shape) for shape in shapes)
            channels = 8 * width * expansion
            self.pyramid = nn.ModuleList(conv_norm(channels, channels // 4, 1) for _ in range(4))
            self.head = nn.Sequential(conv_norm(2 * channels, channels // 4), nn.Dropout2d(0.1),
                                      nn.Conv2d(channels // 4, CLASSES, 1))
            self.auxiliary = nn.Sequential(conv_norm(channels // 2, channels // 8), nn.Dropout2d(0.1),
                                           nn.Conv2d(channels // 8, CLASSES, 1))

        def forward(self, x):
            size = x.shape[2:]
            x = self.stem(x)
            for each in self.stages[:3]:
                x = each(x)
            third, x = x, self.stages[3](x)
            pooled = [interpolate(conv(adaptive_avg_pool2d(x, b)), x.shape[2:], mode="bilinear", align_corners=True)
                      for b, conv in zip((1, 2, 3, 6), self.pyramid)]
            logits = self.head(cat([x, *pooled], 1)), self.auxiliary(third)
            return [interpolate(each, size, mode="bilinear", align_corners=True) for each in logits]

    return PspNet()


NETWORKS = {"unet": unet, "pspnet": pspnet}


class Stepper:
    """One rival: a network and its optimizer. `case` has model, options, images, size, precision and compile_backend."""

    def __init__(self, name, case, device, ranks):
        import torch

        network = NETWORKS[case["model"]](**case["options"]).to(device, memory_format=torch.channels_last)
        self.parameters = sum(p.numel() for p in network.parameters())
        if "apex" in name:
            from apex.parallel import convert_syncbn_model
            network = convert_syncbn_model(network)
        elif "SyncBatchNorm" in name:
            network = torch.nn.SyncBatchNorm.convert_sync_batchnorm(network)
        self.optimizer = torch.optim.SGD(network.parameters(), 0.01, 0.9, weight_decay=1e-4, fused=True)
        if ranks > 1:
            network = torch.nn.parallel.DistributedDataParallel(
                network, device_ids=[device.index] if device.type == "cuda" else None, broadcast_buffers=False,
                gradient_as_bucket_view=True)
        if "torch.compile" in name:
            mode = "reduce-overhead" if "graphs" in name else None
            # A backend of torch's that is no compiler takes no mode.
            network = torch.compile(network, backend=case["compile_backend"],
                                    mode=mode if case["compile_backend"] == "inductor" else None)
        self.network = network
        shape = case["images"], 3, *case["size"]
        self.images = torch.randn(shape, device=device).to(memory_format=torch.channels_last)
        self.labels = torch.randint(CLASSES, (case["images"], *case["size"]), device=device)
        self.low_precision = case["precision"] == "bfloat16"

    def step(self):
        import torch
        from torch.nn.functional import cross_entropy

        with torch.autocast(self.images.device.type, torch.bfloat16, enabled=self.low_precision):
            outputs = self.network(self.images)
        losses = [cross_entropy(each.float(), self.labels) for each in outputs]
        (losses[0] + sum(0.4 * each for each in losses[1:])).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def first_line(error):
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:200]


def prepared(name, case, device, ranks):
    """(a rival that has taken its first steps, "") or (None, why it cannot run)"""
    import torch

    torch.manual_seed(1)
    try:
        stepper = Stepper(name, case, device, ranks)
        for _ in range(case["warmup"]):
            stepper.step()
        return stepper, ""
    except Exception as error:  # whatever it is, the others go on
        return None, first_line(error)


def measured(steppers, groups, wait):
    """{rival: milliseconds of a step, of each group of ten}"""
    times = {name: [] for name in steppers}
    for _ in range(groups):
        for name, stepper in steppers.items():
            stepper.step()  # brings this rival's memory back into caches
            wait()
            begin = time.perf_counter()
            for _ in range(10):  # without waiting, so that the host runs ahead
                stepper.step()
            wait()
            times[name].append((time.perf_counter() - begin) * 100)
    return times


def serve(rank, ranks, port, device_type, threads, connection):
    """A rank, which does what it is asked until it is asked to end. Device type "any": a GPU where torch sees one."""
    import torch

    if device_type == "any":
        device_type = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device_type == "cuda" else (lambda: None)
    device = torch.device(device_type, rank) if device_type == "cuda" else torch.device("cpu")
    if threads:
        torch.set_num_threads(threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
    if ranks > 1:
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=rank, world_size=ranks,
                                             init_method=f"tcp://127.0.0.1:{port}")
    steppers = {}
    while True:
        asked, *what = connection.recv()
        if asked == "end":
            break
        if asked == "clear":
            steppers.clear()
            if device.type == "cuda":
                torch.cuda.empty_cache()
            connection.send(device_type)
        elif asked == "add":
            name, case = what
            stepper, refusal = prepared(name, case, device, ranks)
            if stepper:
                steppers[name] = stepper
            connection.send((refusal, stepper.parameters if stepper else None))
        else:
            connection.send(measured(steppers, *what, wait))
    if ranks > 1:
        torch.distributed.destroy_process_group()


class Rivals:
    """The processes of the rivals, which wait while others are measured. `limit`: seconds for one answer."""

    def __init__(self, device, ranks, limit, threads=None):
        self.device, self.limit = device, limit
        self.refused, self.parameters = {}, None  # of the case that is prepared
        if device == "cpu":
            threads = threads or max(1, len(os.sched_getaffinity(0)) // ranks)
        self.world = ranks, device, threads
        self.ranks, self.connections = [], []

    def start(self):
        ranks, device, threads = self.world
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            self.ranks.append(context.Process(target=serve, args=(rank, ranks, port, device, threads, theirs)))
            self.ranks[-1].start()
            theirs.close()
            self.connections.append(ours)

    def ask(self, *what):
        """The answers of all ranks. Raises RuntimeError where one does not answer; none is left then."""
        deadline = time.monotonic() + self.limit
        rank = 0
        try:
            for connection in self.connections:
                connection.send(what)
            found = []
            for rank, connection in enumerate(self.connections):
                if not connection.poll(max(0, deadline - time.monotonic())):
                    raise RuntimeError(f"rank {rank} of PyTorch's said nothing in {self.limit:.0f} s")
                found.append(connection.recv())
            return found
        except (EOFError, OSError):
            self.kill()
            raise RuntimeError(f"rank {rank} of PyTorch's ended before its time") from None
        except RuntimeError:
            self.kill()
            raise

    def prepare(self, names, case):
        """Builds the rivals of one case. One that hangs is left out, and the others are built again."""
        self.refused, self.parameters = {}, None
        ready = []
        self.clear()
        for name in names:
            try:
                self.add(name, case)
                ready.append(name)
            except RuntimeError as reason:
                self.refused[name] = str(reason)
                self.clear()
                for each in ready:
                    self.add(each, case)

    def clear(self):
        if not self.ranks:
            self.start()
        self.device = self.ask("clear")[0]

    def add(self, name, case):
        refusal, parameters = self.ask("add", name, case)[0]
        if refusal:
            self.refused[name] = refusal
        else:
            self.parameters = parameters

    def measure(self, groups):
        """{rival: milliseconds of a step, of each group}, of the slowest rank in each group."""
        found = self.ask("measure", groups)
        return {name: [max(group) for group in zip(*(times[name] for times in found))] for name in found[0]}

    def kill(self):
        for process in self.ranks:
            process.kill()
            process.join()
        self.ranks, self.connections = [], []

    def end(self):
        for connection in self.connections:
            try:
                connection.send(("end",))
            except OSError:
                pass
        for process in self.ranks:
            process.join(20)
        self.kill()
