"""Trains a small network on scikit-learn's handwritten digits, as an Estimator, with a hook.

Needs a TensorFlow that has ``tf.estimator``: 2.15 or earlier.
"""

import argparse

import tensorflow as tf
from sklearn.datasets import load_digits

import tornasole.tensorflow as smd

v1 = tf.compat.v1


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out-dir", required=True)
    return parser.parse_args()


def load_data(options):
    digits = load_digits()
    images = (digits.data / 16).astype("float32")
    labels = digits.target.astype("int64")

    def seen():
        data = tf.data.Dataset.from_tensor_slices((images[:-300], labels[:-300]))
        return data.shuffle(len(images), options.seed).batch(options.batch_size)

    def unseen():
        data = tf.data.Dataset.from_tensor_slices((images[-300:], labels[-300:]))
        return data.batch(options.batch_size)

    return seen, unseen


def main():
    options = parse_options()
    hook = smd.EstimatorHook(
        options.out_dir,
        save_config={
            smd.modes.TRAIN: smd.SaveConfigMode(save_interval=20),
            smd.modes.EVAL: smd.SaveConfigMode(save_interval=2),
        },
        include_collections=["weights", "biases", "gradients", "losses"],
    )

    def model_fn(features, labels, mode):
        hidden = v1.layers.dense(features, 32, tf.nn.relu, name="hidden")
        logits = v1.layers.dense(hidden, 10, name="digits")
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        optimizer = hook.wrap_optimizer(v1.train.AdamOptimizer(options.lr))
        training = optimizer.minimize(loss, v1.train.get_global_step())
        accuracy = v1.metrics.accuracy(labels, tf.argmax(logits, 1))
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, train_op=training, eval_metric_ops={"accuracy": accuracy}
        )

    config = tf.estimator.RunConfig(tf_random_seed=options.seed, log_step_count_steps=None)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    seen, unseen = load_data(options)
    for epoch in range(options.epochs):
        hook.set_mode(smd.modes.TRAIN)
        estimator.train(seen, hooks=[hook])
        hook.set_mode(smd.modes.EVAL)
        found = estimator.evaluate(unseen, hooks=[hook])
        print(f"epoch {epoch + 1}: loss {found['loss']:.6f}, accuracy {found['accuracy']:.4f}")
    hook.close()


if __name__ == "__main__":
    main()
