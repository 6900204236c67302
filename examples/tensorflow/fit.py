"""Trains a small network on scikit-learn's handwritten digits with ``fit``, and a hook."""

import argparse

import keras
from sklearn.datasets import load_digits

import tornasole.tensorflow as smd


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out-dir", required=True)
    return parser.parse_args()


def create_model():
    return keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu", name="conv"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10, name="out"),
        ]
    )


def main():
    options = parse_options()
    keras.utils.set_random_seed(options.seed)
    digits = load_digits()
    images, labels = digits.images[..., None] / 16, digits.target
    model = create_model()
    model.compile(
        optimizer="adam",
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

    # Losses and metrics are always saved.
    hook = smd.KerasHook(
        out_dir=options.out_dir,
        include_collections=["weights", "gradients", "layers"],
        save_config=smd.SaveConfig(save_interval=10),
    )
    history = model.fit(
        images[:-300],
        labels[:-300],
        batch_size=options.batch_size,
        epochs=options.epochs,
        validation_data=(images[-300:], labels[-300:]),
        callbacks=[hook],
        verbose=0,
    )
    hook.close()
    for epoch, loss in enumerate(history.history["loss"]):
        print(f"epoch {epoch + 1}: loss {loss:.4f}")


if __name__ == "__main__":
    main()
