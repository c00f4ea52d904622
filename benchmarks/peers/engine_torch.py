"""PyTorch as a peer of ./bench engine: see engine_common.py for the models and the options.

PyTorch is given its best: eager mode with channels-last images where that is faster, set_to_none gradients, batches that are tensors already, no
DataLoader. Where the installed version has torch.compile (2.x) and a C++ compiler, that is tried too. Each way is tried for a quarter of the
time, the fastest is then measured; "way" says which and "ways" has all of them. First step and memory are those of plain eager mode.
Run it with the interpreter that tools/python-env torch prints. For a claim of speed that should be PyTorch's own build (torch-pypi):
Debian's uses whatever BLAS the system has, and with the reference BLAS it is ten times slower. "versions" says which it was.
"""

import os
import sys

import engine_common as common


def attention(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(128), nn.LayerNorm(128)
            self.qkv, self.out = nn.Linear(128, 384), nn.Linear(128, 128)
            self.ffn = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))
            self.register_buffer("hidden", torch.triu(torch.full((64, 64), float("-inf")), 1), persistent=False)

        def attend(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(x).view(b, t, 3, 4, 32).permute(2, 0, 3, 1, 4)
            if hasattr(nn.functional, "scaled_dot_product_attention"):  # 2.0 and later
                y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                y = torch.softmax(q @ k.transpose(-2, -1) * 32**-0.5 + self.hidden, -1) @ v
            return self.out(y.transpose(1, 2).reshape(b, t, 128))

        def forward(self, x):
            x = x + self.attend(self.norm1(x))
            return x + self.ffn(self.norm2(x))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(64, 128), nn.Parameter(torch.randn(64, 128) * 0.02)
            self.blocks = nn.Sequential(Block(), Block())
            self.norm, self.head = nn.LayerNorm(128), nn.Linear(128, 64)

        def forward(self, ids):
            return self.head(self.norm(self.blocks(self.tokens(ids) + self.positions)))

    return Transformer()


def build(name):
    """(model, optimizer, loss function)."""
    import torch

    nn, optim = torch.nn, torch.optim
    sparse = nn.CrossEntropyLoss()
    if name == "nnlm_head":
        model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))
        return model, optim.Adam(model.parameters(), 1e-4), nn.BCEWithLogitsLoss()
    if name == "mlp_512":
        model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        return model, optim.SGD(model.parameters(), 0.01), sparse
    if name == "mnist_cnn":
        model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(21632, 128), nn.ReLU(), nn.Linear(128, 10))
        return model, optim.SGD(model.parameters(), 0.001), sparse
    if name == "svhn_cnn":
        def pair(a, b):
            return [nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]

        model = nn.Sequential(*pair(3, 32), *pair(32, 64), nn.Flatten(), nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 10))
        return model, optim.Adam(model.parameters(), 1e-3), sparse
    if name == "conv1d":
        class Most(nn.Module):
            def forward(self, x):
                return x.amax(2)

        model = nn.Sequential(nn.Conv1d(64, 128, 5, padding=2), nn.ReLU(), nn.Conv1d(128, 128, 5, padding=2), nn.ReLU(), Most(), nn.Linear(128, 10))
        return model, optim.Adam(model.parameters(), 1e-3), sparse
    model = attention(torch)
    return model, optim.Adam(model.parameters(), 1e-3), lambda out, y: sparse(out.reshape(-1, 64), y.reshape(-1))


def way(name, x, y, channels_last=False, compiled=False):
    import torch

    model, optimizer, loss_function = build(name)
    pairs = []
    for a, b in zip(x, y):
        a = torch.from_numpy(a).long() if name == "char_transformer" else torch.from_numpy(a)
        if a.dim() == 3 and name == "conv1d":
            a = a.permute(0, 2, 1).contiguous()
        if a.dim() == 4:
            a = a.permute(0, 3, 1, 2)  # (height, width, channels) to PyTorch's order, which this already has in memory
            a = a if channels_last else a.contiguous()
        pairs.append((a, torch.from_numpy(b) if name == "nnlm_head" else torch.from_numpy(b).long()))
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    called = torch.compile(model) if compiled else model

    last = []

    def run(number):
        a, b = pairs[number]
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(called(a), b)
        loss.backward()
        optimizer.step()
        last[:] = [loss]

    return common.loop(run, lambda: last[0].item()), model


def run_model(name, seconds, options):
    import torch

    batch, quick = options.batch, options.quick

    x, y = common.data(name, batch)
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # Debian's build starts with one
    eager, model = way(name, x, y)
    eager(1, 1)
    first = common.since_process_start()
    ways, rates = {"eager": eager}, {"eager": common.measure(eager, seconds / 4, batch)[0]}
    memory = common.peak_rss_mb()
    if x.ndim == 5 and not quick:
        ways["channels_last"] = way(name, x, y, channels_last=True)[0]
    if hasattr(torch, "compile") and not quick:
        ways["compiled"] = way(name, x, y, compiled=True)[0]
    for key in list(ways)[1:]:
        try:
            rates[key] = common.measure(ways[key], seconds / 4, batch)[0]
        except Exception as error:  # torch.compile without a compiler: said, and left out
            rates[key] = 0
            print(f"engine_torch: {key} is left out: {type(error).__name__}", file=sys.stderr)
    blas = "MKL" if torch.backends.mkl.is_available() else "the system's BLAS (a slow one unless it is OpenBLAS)"
    best = max(rates, key=rates.get)
    common.rate_line(name, ways[best], seconds, options, "torch", way=best,
                     ways={key: round(value) for key, value in rates.items()}, parameters=sum(p.numel() for p in model.parameters()),
                     versions=f"torch {torch.__version__}, {blas}", threads=torch.get_num_threads())
    common.line(name, "first_step_ms", "ms", first * 1e3, "torch", batch=batch)
    common.line(name, "peak_rss_mb", "MB", memory, "torch", batch=batch)


if __name__ == "__main__":
    raise SystemExit(common.main("torch", run_model))
