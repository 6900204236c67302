"""PyTorch keeps the contract of adapters."""

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import tornasole.pytorch as smd  # noqa: E402
from tornasole.testing import AdapterContract  # noqa: E402


class Job:
    def __init__(self, attached):
        self._random = torch.Generator().manual_seed(0)
        torch.manual_seed(0)
        self._model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        self._loss = nn.CrossEntropyLoss()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.1, momentum=0.9)
        self._attached = attached
        self._seen = {}

    def hook(self, out_dir, **options):
        hook = smd.Hook(out_dir, **options)
        hook.register_module(self._model)
        hook.register_loss(self._loss)
        return hook

    def train(self, steps):
        for _ in range(steps):
            x = torch.randn(5, 4, generator=self._random)
            y = torch.randint(0, 3, (5,), generator=self._random)
            weight = self._model[0].weight.detach().clone()
            self._optimizer.zero_grad()
            output = self._model(x)
            loss = self._loss(output, y)
            loss.backward()
            self._optimizer.step()
            momentum = self._optimizer.state[self._model[0].weight]["momentum_buffer"]
            self._seen = {
                "Sequential_0.weight": weight,
                "Sequential_input_0": x,
                "Sequential_output_0": output,
                "CrossEntropyLoss_output_0": loss,
                "CrossEntropyLoss_input_1": y,
                "gradient/Sequential_0.weight": self._model[0].weight.grad,
                "optimizer/SGD/Sequential_0.weight/momentum_buffer": momentum,
            }

    def seen(self):
        return {name: value.detach().numpy() for name, value in self._seen.items()}

    def result(self):
        return torch.cat([p.detach().flatten() for p in self._model.parameters()]).numpy()

    def attached(self):
        return self._attached(self._model, self._loss)


class TestPyTorch(AdapterContract):
    @pytest.fixture
    def job(self, attached):
        return lambda: Job(attached)
