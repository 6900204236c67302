"""Trains a small network on scikit-learn's handwritten digits, in a session, with a hook."""

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tornasole.tensorflow as smd

v1 = tf.compat.v1


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out-dir", required=True)
    return parser.parse_args()


def dense(inputs, size, name):
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [inputs.shape[1], size])
        bias = v1.get_variable("bias", [size], initializer=v1.zeros_initializer())
        return tf.add(tf.matmul(inputs, kernel), bias, "output")


def main():
    options = parse_options()
    digits = load_digits()
    images = (digits.data / 16).astype("float32")
    labels = digits.target.astype("int64")
    numbers = np.random.default_rng(options.seed)

    hook = smd.SessionHook(
        options.out_dir,
        save_config=smd.SaveConfig(save_interval=50),
        include_collections=["weights", "biases", "gradients", "losses"],
        include_regex="^relu:0$",
    )

    with tf.Graph().as_default():
        v1.set_random_seed(options.seed)
        x = v1.placeholder(tf.float32, [None, 64], "images")
        y = v1.placeholder(tf.int64, [None], "labels")
        logits = dense(tf.nn.relu(dense(x, 32, "hidden"), "relu"), 10, "digits")
        loss = v1.losses.sparse_softmax_cross_entropy(y, logits)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
        optimizer = hook.wrap_optimizer(v1.train.AdamOptimizer(options.lr))
        training = optimizer.minimize(loss)

        with v1.train.MonitoredSession(hooks=[hook]) as session:
            hook.set_mode(smd.modes.TRAIN)
            for step in range(1, options.steps + 1):
                batch = numbers.integers(0, len(images) - 300, options.batch_size)
                feed = {x: images[batch], y: labels[batch]}
                _, value = session.run([training, loss], feed)
                if step % 100 == 0:
                    print(f"step {step}: loss {value:.6f}")

            hook.set_mode(smd.modes.EVAL)
            found = session.run(accuracy, {x: images[-300:], y: labels[-300:]})
            print(f"accuracy {found:.4f}")
    hook.close()


if __name__ == "__main__":
    main()
