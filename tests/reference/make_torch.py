"""Stores the same kinds of cases as make_layers.py, make_losses.py and make_optimizers.py, computed by PyTorch: torch/*.safetensors.

A second source beside Keras: everything is computed in float64 and rounded once to float32, so a difference is the engine's own. Layers: torch/layer_CASE
with the keys and metadata of layers/ (Keras's layouts: images (batch, height, width, channels), kernels (height, width, in, out), gates in Keras's
order; the script converts from PyTorch's). Losses: torch/loss_CASE with the keys of losses/. Optimizers: torch/optimizer_CASE with the keys
of optimizers/ (without slots); epsilon is 1e-12 there, because the two frameworks put it in different places. Run it with the interpreter that
tools/python-env torch prints.
"""

import numpy as np
import torch
import torch.nn.functional as F

from common import normal, rng, save

MADE_BY = f"torch {torch.__version__.split('+')[0]}"
torch.set_default_dtype(torch.float64)


def single(tensor):
    """The stored form: float32, or the integers as they are."""
    array = tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else np.asarray(tensor)
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def leaf(array):
    tensor = torch.from_numpy(np.asarray(array))
    return tensor.double().requires_grad_() if tensor.is_floating_point() else tensor


def layer_case(name, layer, config, function, inputs, weights, names, training="0", call=None, after=None, trainable=None):
    """inputs: shapes or arrays; weights: shapes or arrays; function(inputs, weights) -> output."""
    random = rng("torch " + name)
    xs = [leaf(normal(random, *x) if isinstance(x, tuple) else x) for x in inputs]
    ws = [leaf(normal(random, *w, scale=0.5) if isinstance(w, tuple) else w) for w in weights]
    y = function(xs, ws)
    upstream = leaf(normal(random, *y.shape))
    (y * upstream).sum().backward()
    arrays = {"output.0": single(y), "upstream.0": single(upstream)}
    for kind, tensors in (("input", xs), ("weight", ws)):
        for i, tensor in enumerate(tensors):
            arrays[f"{kind}.{i}"] = single(tensor)
            if tensor.grad is not None:
                arrays[f"grad.{kind}.{i}"] = single(tensor.grad)
    arrays |= {f"after.weight.{i}": single(value) for i, value in (after or {}).items()}
    save(f"torch/layer_{name}.safetensors", arrays, layer=layer, config=config, weight_names=names, trainable=trainable or [True] * len(ws),
         training=training, call=call or {"inputs": "one"}, made_by=MADE_BY)


def convolutions():
    def conv(stride, dilation, groups, same):
        def function(xs, ws):
            x, kernel = xs[0].permute(0, 3, 1, 2), ws[0].permute(3, 2, 0, 1)
            if same:  # as TensorFlow pads: the odd one at the end
                pads = []
                for size, k in ((x.shape[3], kernel.shape[3]), (x.shape[2], kernel.shape[2])):
                    total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
                    pads += [total // 2, total - total // 2]
                x = F.pad(x, pads)
            return F.conv2d(x, kernel, ws[1], stride, 0, dilation, groups).permute(0, 2, 3, 1)
        return function

    def case(name, x, k, out, stride=1, dilation=1, groups=1, padding="valid"):
        config = {"filters": out, "kernel_size": k, "strides": stride, "dilation_rate": dilation, "groups": groups, "padding": padding}
        layer_case(name, "Conv2D", config, conv(stride, dilation, groups, padding == "same"), [x], [(k, k, x[3] // groups, out), (out,)], ["kernel", "bias"])

    case("conv2d_valid", (2, 9, 8, 5), 3, 7)
    case("conv2d_same_k5_stride2", (2, 11, 10, 3), 5, 6, stride=2, padding="same")
    case("conv2d_same_stride3", (1, 10, 8, 4), 3, 8, stride=3, padding="same")
    case("conv2d_dilation3", (1, 12, 11, 3), 3, 4, dilation=3, padding="same")
    case("conv2d_groups4", (2, 6, 7, 8), 3, 12, groups=4, padding="same")
    case("conv2d_groups_stride2", (2, 9, 9, 6), 3, 6, stride=2, groups=2)
    case("conv2d_32_channels", (2, 6, 6, 32), 3, 32, padding="same")

    def depthwise(xs, ws):
        kernel = ws[0].permute(2, 3, 0, 1).reshape(-1, 1, 3, 3)
        return F.conv2d(F.pad(xs[0].permute(0, 3, 1, 2), [1] * 4), kernel, ws[1], groups=6).permute(0, 2, 3, 1)

    layer_case("depthwise_multiplier2_same", "DepthwiseConv2D", {"kernel_size": 3, "depth_multiplier": 2, "padding": "same"}, depthwise,
               [(2, 5, 6, 6)], [(3, 3, 6, 2), (12,)], ["kernel", "bias"])

    def max_pool(xs, ws):
        return F.max_pool2d(xs[0].permute(0, 3, 1, 2), 3, 2).permute(0, 2, 3, 1)

    def average_pool(xs, ws):
        return F.avg_pool2d(xs[0].permute(0, 3, 1, 2), 2, 2).permute(0, 2, 3, 1)

    layer_case("max_pooling_3_stride2", "MaxPooling2D", {"pool_size": 3, "strides": 2}, max_pool, [(2, 9, 8, 5)], [], [])
    layer_case("average_pooling_2", "AveragePooling2D", {"pool_size": 2}, average_pool, [(2, 7, 8, 5)], [], [])


def normalizations():
    layer_case("layer_normalization", "LayerNormalization", {"epsilon": 1e-5}, lambda xs, ws: F.layer_norm(xs[0], (24,), ws[0], ws[1], 1e-5),
               [(3, 5, 24)], [(24,), (24,)], ["gamma", "beta"])
    random = rng("torch batch norm")
    mean, variance = normal(random, 6), random.uniform(0.5, 2, 6).astype(np.float32)
    running = [torch.from_numpy(mean).double(), torch.from_numpy(variance).double()]
    x = normal(random, 4, 5, 3, 6) * 3 + 2

    def batch_norm(xs, ws):
        return F.batch_norm(xs[0].permute(0, 3, 1, 2), None, None, ws[0], ws[1], True, 0.0, 1e-3).permute(0, 2, 3, 1)

    # PyTorch's own moving variance is the unbiased one; Keras's is not: both means are taken from torch, the rule is Keras's
    flat = torch.from_numpy(x).double().reshape(-1, 6)
    moved = {2: running[0] * 0.99 + flat.mean(0) * 0.01, 3: running[1] * 0.99 + flat.var(0, unbiased=False) * 0.01}
    layer_case("batch_normalization_training", "BatchNormalization", {"momentum": 0.99, "epsilon": 1e-3}, batch_norm, [x],
               [(6,), (6,), mean, variance], ["gamma", "beta", "moving_mean", "moving_variance"], training="1", after=moved,
               trainable=[True, True, False, False])


def recurrent():
    def lstm(xs, ws):
        """Keras: kernel (in, 4 units), gates i f c o, as PyTorch's."""
        kernel, inner, bias = ws
        h = c = torch.zeros(xs[0].shape[0], inner.shape[0])
        for t in range(xs[0].shape[1]):
            h, c = torch._VF.lstm_cell(xs[0][:, t], (h, c), kernel.T, inner.T, bias, torch.zeros_like(bias))
        return h

    def gru(xs, ws):
        """Keras: gates z r h, bias (2, 3 units); PyTorch: r z n."""
        def order(w):
            z, r, n = w.chunk(3, -1)
            return torch.cat([r, z, n], -1)

        kernel, inner, bias = (order(w) for w in ws)
        h, steps = torch.zeros(xs[0].shape[0], inner.shape[0]), []
        for t in range(xs[0].shape[1]):
            h = torch._VF.gru_cell(xs[0][:, t], h, kernel.T, inner.T, bias[0], bias[1])
            steps.append(h)
        return torch.stack(steps, 1)

    layer_case("lstm", "LSTM", {"units": 6}, lstm, [(3, 9, 5)], [(5, 24), (6, 24), (24,)], ["kernel", "recurrent_kernel", "bias"])
    layer_case("gru_sequences", "GRU", {"units": 6, "return_sequences": True}, gru, [(3, 9, 5)], [(5, 18), (6, 18), (2, 18)],
               ["kernel", "recurrent_kernel", "bias"])


def attention():
    def function(causal):
        def run(xs, ws):
            qk, qb, kk, kb, vk, vb, ok, ob = ws
            x = xs[0].transpose(0, 1)  # PyTorch: (time, batch, features)
            into = torch.cat([w.reshape(w.shape[0], -1) for w in (qk, kk, vk)], 1).T
            bias = torch.cat([b.reshape(-1) for b in (qb, kb, vb)])
            steps = x.shape[0]
            mask = torch.ones(steps, steps, dtype=torch.bool).triu(1) if causal else None
            y, _ = F.multi_head_attention_forward(x, x, x, x.shape[2], 4, into, bias, None, None, False, 0.0, ok.reshape(-1, x.shape[2]).T, ob,
                                                  need_weights=False, attn_mask=mask)
            return y.transpose(0, 1)
        return run

    shapes = [(16, 4, 4), (4, 4), (16, 4, 4), (4, 4), (16, 4, 4), (4, 4), (4, 4, 16), (16,)]
    names = ["query/kernel", "query/bias", "key/kernel", "key/bias", "value/kernel", "value/bias", "attention_output/kernel", "attention_output/bias"]
    for name, causal in (("attention", False), ("attention_causal", True)):
        call = {"inputs": "self"} | ({"use_causal_mask": True} if causal else {})
        layer_case(name, "MultiHeadAttention", {"num_heads": 4, "key_dim": 4}, function(causal), [(2, 7, 16)], shapes, names, call=call)


def dense():
    functions = {"gelu": F.gelu, "elu": F.elu, "silu": F.silu, "softplus": F.softplus, "log_softmax": lambda x: F.log_softmax(x, -1),
                 "leaky_relu": lambda x: F.leaky_relu(x, 0.2)}
    for name, function in functions.items():
        layer_case(f"dense_{name}", "Dense", {"units": 9, "activation": name}, lambda xs, ws, f=function: f(xs[0] @ ws[0] + ws[1]), [(5, 11)],
                   [(11, 9), (9,)], ["kernel", "bias"])
    ids = rng("torch ids").integers(0, 13, (4, 6)).astype(np.int32)
    layer_case("embedding", "Embedding", {"input_dim": 13, "output_dim": 5}, lambda xs, ws: F.embedding(xs[0].long(), ws[0]), [ids], [(13, 5)],
               ["embeddings"])


def losses():
    def case(name, cls, config, per_element, y_true, y_pred):
        arrays = {"y_true": single(y_true), "y_pred": single(y_pred)}
        random = rng("torch loss " + name)
        for reduction in ("none", "sum", "sum_over_batch_size"):
            prediction = leaf(y_pred)
            loss = per_element(prediction, leaf(y_true))
            if reduction == "none":
                upstream = leaf(normal(random, *loss.shape))
                arrays["upstream"], target = single(upstream), (loss * upstream).sum()
            else:
                loss = target = loss.sum() if reduction == "sum" else loss.mean()
            target.backward()
            arrays |= {f"loss.{reduction}": single(loss), f"grad.{reduction}": single(prediction.grad)}
        save(f"torch/loss_{name}.safetensors", arrays, loss=cls, config=config, made_by=MADE_BY)

    r = rng("torch losses")
    a, b = normal(r, 6, 4, scale=2), normal(r, 6, 4, scale=2)
    case("mse", "MeanSquaredError", {}, lambda p, y: F.mse_loss(p, y, reduction="none").mean(-1), a, b)
    case("mae", "MeanAbsoluteError", {}, lambda p, y: F.l1_loss(p, y, reduction="none").mean(-1), a, b)
    case("huber", "Huber", {"delta": 1.5}, lambda p, y: F.huber_loss(p, y, reduction="none", delta=1.5).mean(-1), a, b)
    labels = r.integers(0, 2, (6, 4)).astype(np.float32)
    case("bce_logits", "BinaryCrossentropy", {"from_logits": True},
         lambda p, y: F.binary_cross_entropy_with_logits(p, y, reduction="none").mean(-1), labels, b * 4)
    ids = r.integers(0, 4, 6).astype(np.int32)
    case("sparse_logits", "SparseCategoricalCrossentropy", {"from_logits": True}, lambda p, y: F.cross_entropy(p, y.long(), reduction="none"), ids, b * 4)
    pixels = r.integers(0, 3, (2, 4, 5)).astype(np.int32)
    case("sparse_logits_segmentation", "SparseCategoricalCrossentropy", {"from_logits": True},
         lambda p, y: F.cross_entropy(p.permute(0, 3, 1, 2), y.long(), reduction="none"), pixels, normal(r, 2, 4, 5, 3))
    soft = torch.softmax(torch.from_numpy(a), -1).float().numpy()
    case("cce_logits", "CategoricalCrossentropy", {"from_logits": True}, lambda p, y: F.cross_entropy(p, y, reduction="none"), soft, b)


def optimizers():
    tiny, shapes, steps = 1e-12, [(3, 4), (5,)], 10
    O = torch.optim
    cases = {
        "sgd": ("SGD", {"learning_rate": 0.05}, lambda p: O.SGD(p, 0.05)),
        "sgd_momentum": ("SGD", {"learning_rate": 0.05, "momentum": 0.9}, lambda p: O.SGD(p, 0.05, momentum=0.9)),
        "sgd_nesterov": ("SGD", {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True}, lambda p: O.SGD(p, 0.05, momentum=0.9, nesterov=True)),
        "adam": ("Adam", {"learning_rate": 0.01, "epsilon": tiny}, lambda p: O.Adam(p, 0.01, eps=tiny)),
        "adamw": ("AdamW", {"learning_rate": 0.01, "weight_decay": 0.1, "epsilon": tiny}, lambda p: O.AdamW(p, 0.01, eps=tiny, weight_decay=0.1)),
        "rmsprop": ("RMSprop", {"learning_rate": 0.01, "rho": 0.9, "epsilon": tiny}, lambda p: O.RMSprop(p, 0.01, alpha=0.9, eps=tiny)),
        "rmsprop_momentum": ("RMSprop", {"learning_rate": 0.01, "rho": 0.9, "momentum": 0.8, "epsilon": tiny},
                             lambda p: O.RMSprop(p, 0.01, alpha=0.9, momentum=0.8, eps=tiny)),
        "adagrad": ("Adagrad", {"learning_rate": 0.1, "initial_accumulator_value": 0.1, "epsilon": tiny},
                    lambda p: O.Adagrad(p, 0.1, initial_accumulator_value=0.1, eps=tiny)),
    }
    for name, (cls, config, make) in cases.items():
        random = rng("torch optimizers")
        variables = [leaf(normal(random, *shape)) for shape in shapes]
        arrays = {f"var.{i}": single(v) for i, v in enumerate(variables)}
        optimizer = make(variables)
        for step in range(steps):
            for i, variable in enumerate(variables):
                gradient = normal(random, *variable.shape)
                variable.grad = torch.from_numpy(gradient).double()
                arrays[f"grad.{step}.{i}"] = gradient
            optimizer.step()
            arrays |= {f"after.{step}.{i}": single(v) for i, v in enumerate(variables)}
        save(f"torch/optimizer_{name}.safetensors", arrays, optimizer=cls, config=config, steps=str(steps), made_by=MADE_BY)


if __name__ == "__main__":
    for group in (dense, convolutions, normalizations, recurrent, attention, losses, optimizers):
        group()
        print(group.__name__)
