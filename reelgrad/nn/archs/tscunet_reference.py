"""TSCUNet in PyTorch, for spandrel_reference.py, without the noise of training: frame after frame.

Sources: the paper of SCUNet (Zhang et al., 2022) for the blocks; aaf6aa/SCUNet and traiNNer-redux, tscunet_arch.py, for
what is made of them, the margins and the names of the weights.
"""
import torch
from torch import nn
from torch.nn import functional

SIDE, HEAD = 8, 32


def windows(x):
    """[N, H, W, C] -> [N * H / 8 * W / 8, 64, C]."""
    return x.unflatten(2, (-1, SIDE)).unflatten(1, (-1, SIDE)).transpose(2, 3).flatten(3, 4).flatten(0, 2)


class Attention(nn.Module):
    def __init__(self, features, shift):
        super().__init__()
        self.shift, self.heads = shift, features // HEAD
        self.embedding_layer = nn.Linear(features, 3 * features)
        self.linear = nn.Linear(features, features)
        self.relative_position_params = nn.Parameter(torch.zeros(self.heads, 2 * SIDE - 1, 2 * SIDE - 1))

    def bias(self):
        places = [(row, column) for row in range(SIDE) for column in range(SIDE)]
        rows = torch.tensor([[a[0] - b[0] + SIDE - 1 for b in places] for a in places])
        columns = torch.tensor([[a[1] - b[1] + SIDE - 1 for b in places] for a in places])
        return self.relative_position_params[:, rows, columns]

    def forward(self, x):
        """x: [N, H, W, C]."""
        height, width = x.shape[1:3]
        x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        # The side of the picture that each place of the shifted picture comes from: 1 for what was rolled over.
        row_side = (torch.arange(height, device=x.device) >= height - self.shift).long()
        column_side = (torch.arange(width, device=x.device) >= width - self.shift).long()
        side = windows((row_side[:, None] * 2 + column_side)[None, :, :, None]).squeeze(2)
        apart = side[:, :, None] != side[:, None]
        attended = self.attend(windows(x), apart.repeat(len(x), 1, 1)[:, None])
        grid = attended.unflatten(1, (SIDE, SIDE)).unflatten(0, (len(x), height // SIDE, width // SIDE))
        return torch.roll(grid.transpose(2, 3).reshape(x.shape), (self.shift, self.shift), (1, 2))

    def attend(self, window, apart):
        query, key, value = (
            part.unflatten(2, (self.heads, HEAD)).transpose(1, 2) for part in self.embedding_layer(window).chunk(3, 2)
        )
        similar = query @ key.transpose(2, 3) * HEAD**-0.5 + self.bias()
        weights = similar.masked_fill(apart, float("-inf")).softmax(3)
        return self.linear((weights @ value).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self, features, shift):
        super().__init__()
        self.ln1 = nn.LayerNorm(features)
        self.msa = Attention(features, shift)
        self.ln2 = nn.LayerNorm(features)
        self.mlp = nn.Sequential(nn.Linear(features, 4 * features), nn.GELU(), nn.Linear(4 * features, features))

    def forward(self, x):
        x = x + self.msa(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Block(nn.Module):
    def __init__(self, features, shift):
        super().__init__()
        half = features // 2
        self.trans_block = Transformer(half, shift)
        self.conv1_1 = nn.Conv2d(features, features, 1)
        self.conv1_2 = nn.Conv2d(features, features, 1)
        self.conv_block = nn.Sequential(conv(half, half), nn.ReLU(), conv(half, half))

    def forward(self, x):
        convolved, transformed = self.conv1_1(x).chunk(2, 1)
        convolved = convolved + self.conv_block(convolved)
        transformed = self.trans_block(transformed.movedim(1, 3)).movedim(3, 1)
        return x + self.conv1_2(torch.cat([convolved, transformed], 1))


def conv(inputs, outputs, bias=False):
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias)


def blocks(features, count):
    return [Block(features, SIDE // 2 if i % 2 else 0) for i in range(count)]


def enlarged(inputs, outputs):
    return [nn.Upsample(scale_factor=2), conv(inputs, outputs, bias=True), nn.LeakyReLU(0.2)]


class Up(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.up = nn.Sequential(*layers)

    def forward(self, x):
        return self.up(x)


class UNet(nn.Module):
    def __init__(self, features, count):
        super().__init__()
        self.m_head = nn.Sequential(conv(3 * features, features))
        for level in (1, 2, 3):
            inputs = features << (level - 1)
            down = nn.Conv2d(inputs, inputs * 2, 2, stride=2, bias=False)
            setattr(self, f"m_down{level}", nn.Sequential(*blocks(inputs, count), down))
            last = [conv(inputs * 2, inputs, bias=True), nn.LeakyReLU(0.2)]
            up = Up(*enlarged(inputs * 2, inputs * 2), *last)
            setattr(self, f"m_up{level}", nn.Sequential(up, *blocks(inputs, count)))
        self.m_body = nn.Sequential(*blocks(features * 8, count))
        self.m_res = nn.Sequential(conv(features, features))
        self.m_tail = nn.Sequential(conv(features, features), nn.LeakyReLU(0.2))

    def forward(self, frames):
        first = self.m_head(torch.cat(frames, 1))
        second = self.m_down1(first)
        third = self.m_down2(second)
        fourth = self.m_down3(third)
        x = self.m_up3(self.m_body(fourth) + fourth)
        x = self.m_up1(self.m_up2(x + third) + second)
        return self.m_tail(x + self.m_res(first))


class Dense(nn.Module):
    def __init__(self, features, growth=32):
        super().__init__()
        for i in range(5):
            outputs = features if i == 4 else growth
            setattr(self, f"conv{i + 1}", conv(features + i * growth, outputs, bias=True))

    def forward(self, x):
        seen = x
        for i in range(1, 5):
            made = functional.leaky_relu(getattr(self, f"conv{i}")(seen), 0.2)
            seen = torch.cat([seen, made], 1)
        return x + 0.2 * self.conv5(seen)


class DenseInDense(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.rdb1, self.rdb2, self.rdb3 = (Dense(features) for _ in range(3))

    def forward(self, x):
        return x + 0.2 * self.rdb3(self.rdb2(self.rdb1(x)))


class TSCUNet(nn.Module):
    def __init__(self, channels, features, count, scale, residual, sigma):
        super().__init__()
        self.scale = scale
        self.m_head = nn.Sequential(conv(channels, features))
        self.m_layers = nn.ModuleList(UNet(features, count) for _ in range(2))
        if residual:
            self.m_res = nn.Sequential(conv(features, features))
        up = [layer for _ in range(scale.bit_length() - 1) for layer in enlarged(features, features)]
        last = [conv(features, features, bias=True), nn.LeakyReLU(0.2)]
        self.m_upsample = nn.Sequential(Up(DenseInDense(features), DenseInDense(features), *up, *last))
        self.m_tail = nn.Sequential(conv(features, channels))
        if sigma:  # of the loss alone
            layers = [layer for _ in range(4) for layer in (conv(features, features, bias=True), nn.PReLU())]
            self.m_sigma = nn.Sequential(*layers)
            self.m_sigma_tail = nn.Sequential(conv(features, channels))

    def margins(self, size):
        missing = -size % 64 + (0 if self.training else 64)
        return missing - missing // 2, missing // 2

    def forward(self, clip):
        height, width = clip.shape[-2:]
        rows, columns = self.margins(height), self.margins(width)
        padded = [functional.pad(frame, (*columns, *rows), mode="reflect") for frame in clip.unbind(1)]
        features = frames = [self.m_head(frame) for frame in padded]
        for layer in self.m_layers:
            frames = [layer(frames[i : i + 3]) for i in range(len(frames) - 2)]
        x = frames[0]
        if hasattr(self, "m_res"):
            x = x + self.m_res(features[len(features) // 2])
        x = self.m_tail(self.m_upsample(x))
        top, left = rows[0] * self.scale, columns[0] * self.scale
        return x[..., top : top + height * self.scale, left : left + width * self.scale]


def network(state):
    features, channels = state["m_head.0.weight"].shape[:2]
    count = len([key for key in state if key.startswith("m_layers.0.m_body.") and key.endswith(".ln1.weight")])
    enlargements = len([key for key in state if key.startswith("m_upsample.0.up.") and key.count(".") == 4]) // 2 - 1
    scale = 2**enlargements
    return TSCUNet(channels, features, count, scale, "m_res.0.weight" in state, "m_sigma.0.weight" in state), scale
