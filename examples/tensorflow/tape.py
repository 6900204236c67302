"""Trains a small network on scikit-learn's handwritten digits in a loop of its own, with a tape."""

import argparse

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

import tornasole.tensorflow as smd


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eager", action="store_true", help="do not compile the training step")
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
    images, labels = (digits.images[..., None] / 16).astype("float32"), digits.target
    batches = tf.data.Dataset.from_tensor_slices((images[:-300], labels[:-300]))
    batches = batches.shuffle(len(images)).batch(options.batch_size)
    model = create_model()
    optimizer = keras.optimizers.Adam()
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    # Losses are always saved; layers are seen because the model is registered.
    hook = smd.KerasHook(
        out_dir=options.out_dir,
        include_collections=["weights", "gradients", "layers", "optimizer_variables"],
        save_config=smd.SaveConfig(save_interval=10),
    )
    hook.register_model(model)
    hook.wrap_optimizer(optimizer)

    def train_step(images, labels):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = loss_function(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
        return loss

    if not options.eager:
        train_step = tf.function(train_step)

    for epoch in range(options.epochs):
        losses = [float(train_step(*batch)) for batch in batches]
        accuracy = (model(images[-300:]).numpy().argmax(1) == labels[-300:]).mean()
        hook.save_scalar("accuracy", accuracy)
        print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.4f}, accuracy {accuracy:.4f}")
    hook.close()


if __name__ == "__main__":
    main()
