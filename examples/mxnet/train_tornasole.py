"""The training of ``train.py`` with a hook, as the original Tornasole API has it."""

import argparse

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn
from sklearn.datasets import load_digits

from tornasole.mxnet import SaveConfig, modes
from tornasole.mxnet.hook import TornasoleHook


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out-dir", required=True)
    return parser.parse_args()


def load_data(batch_size):
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype("float32")
    labels = digits.target.astype("float32")
    seen = gluon.data.ArrayDataset(images[:-300], labels[:-300])
    unseen = gluon.data.ArrayDataset(images[-300:], labels[-300:])
    return (
        gluon.data.DataLoader(seen, batch_size, shuffle=True),
        gluon.data.DataLoader(unseen, batch_size),
    )


def create_gluon_model():
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(
            nn.Conv2D(8, kernel_size=3, padding=1, activation="relu"),
            nn.MaxPool2D(2),
            nn.Conv2D(16, kernel_size=3, padding=1, activation="relu"),
            nn.Flatten(),
            nn.Dense(32, activation="relu"),
            nn.Dense(10),
        )
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def main():
    options = parse_options()
    mx.random.seed(options.seed)
    np.random.seed(options.seed)
    seen, unseen = load_data(options.batch_size)
    net = create_gluon_model()
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": options.lr})

    # Weights, biases and gradients are saved unless something else is asked for.
    hook = TornasoleHook(
        out_dir=options.out_dir,
        save_config=SaveConfig(save_interval=10),
        include_regex=["loss.*_output", "relu_output"],
    )
    hook.register_hook(net)
    hook.register_hook(loss_function)

    for epoch in range(options.epochs):
        mean_loss, accuracy = mx.metric.Loss(), mx.metric.Accuracy()
        hook.set_mode(modes.TRAIN)
        for images, labels in seen:
            with autograd.record():
                loss = loss_function(net(images), labels)
            loss.backward()
            trainer.step(len(images))
            mean_loss.update(None, loss)

        hook.set_mode(modes.EVAL)
        for images, labels in unseen:
            accuracy.update(labels, net(images))
        print(f"epoch {epoch + 1}: loss {mean_loss.get()[1]:.6f}, accuracy {accuracy.get()[1]:.4f}")


if __name__ == "__main__":
    main()
