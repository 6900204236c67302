"""A transformer language model of 27 million parameters in 230 modules, and a step of its training.

Needs torch alone: smdebug's environment runs it too.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

from benchmarks.measuring import seconds

WIDTH, HEADS, LAYERS, WORDS, LENGTH = 384, 6, 14, 3072, 64


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.softmax = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            each(x).view(batch, length, HEADS, -1).transpose(1, 2)
            for each in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-1, -2) / (WIDTH / HEADS) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = self.dropout(self.softmax(scores.masked_fill(future, float("-inf"))))
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a norm and beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.dropout_1, self.dropout_2 = nn.Dropout(0.1), nn.Dropout(0.1)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout_1(self.attention(self.norm_1(x)))
        return x + self.dropout_2(self.mlp(self.norm_2(x)))


class Transformer(nn.Module):
    """The language model."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Training:
    """The model with its optimizer and data; ``step`` is one step of training.

    torch computes with all cores but one, so that a writer thread does not have to fight for one.
    """

    def __init__(self) -> None:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) - 1))
        torch.manual_seed(0)
        self.model = Transformer()
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.tokens = torch.randint(0, WORDS, (1, LENGTH + 1))

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=False)
        logits = self.model(self.tokens[:, :-1])
        self.loss(logits.flatten(0, 1), self.tokens[:, 1:].flatten()).backward()
        self.optimizer.step()

    def timed_steps(self, count: int) -> list[float]:
        """How long each of some steps takes, in seconds."""
        return [seconds(self.step) for _ in range(count)]

    def tensors(self) -> list[Tensor]:
        """All weights, biases and their gradients."""
        parameters = list(self.model.parameters())
        return [p.detach() for p in parameters] + [p.grad for p in parameters if p.grad is not None]
