"""Trains on scikit-learn's breast cancer data with ``xgboost.train`` and a hook, then reports."""

import argparse

import xgboost as xgb
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import tornasole.xgboost as smd
from tornasole.views.xgboost_report import create_xgboost_report


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--max-depth", type=int, default=4)
    parser.add_argument("--eta", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out-dir", required=True)
    parser.add_argument("--report", help="where the report goes; else into --out-dir")
    return parser.parse_args()


def load_data(seed):
    data = load_breast_cancer()
    names = [name.replace(" ", "_") for name in data.feature_names]
    seen_x, unseen_x, seen_y, unseen_y = train_test_split(
        data.data, data.target, test_size=0.3, random_state=seed
    )
    seen = xgb.DMatrix(seen_x, label=seen_y, feature_names=names)
    unseen = xgb.DMatrix(unseen_x, label=unseen_y, feature_names=names)
    return seen, unseen


def main():
    options = parse_options()
    seen, unseen = load_data(options.seed)
    params = {
        "objective": "binary:logistic",
        "eval_metric": ["error", "auc", "logloss"],
        "max_depth": options.max_depth,
        "eta": options.eta,
        "seed": options.seed,
    }

    # Metrics are always saved; the rest is what the report shows beside them.
    hook = smd.Hook(
        out_dir=options.out_dir,
        include_collections=[
            "hyperparameters",
            "feature_importance",
            "average_shap",
            "predictions",
            "labels",
            "trees",
        ],
        hyperparameters=params,
        train_data=seen,
        validation_data=unseen,
        save_config=smd.SaveConfig(save_interval=5),
    )
    hook.get_collection("metrics").save_config = smd.SaveConfig(save_interval=1)
    history = {}
    xgb.train(
        params,
        seen,
        options.rounds,
        evals=[(seen, "train"), (unseen, "valid")],
        evals_result=history,
        callbacks=[hook],
        verbose_eval=False,
    )
    hook.close()
    for number in range(0, options.rounds, 10):
        loss, area = (history["valid"][metric][number] for metric in ("logloss", "auc"))
        print(f"round {number}: loss {loss:.4f}, auc {area:.4f}")

    trial = smd.create_trial(options.out_dir)
    last = trial.tensor("predictions").steps()[-1]
    shap = {
        name.split("/", 1)[1]: float(trial.tensor(name).value(last))
        for name in trial.tensor_names(collection="average_shap")
    }
    print("what moves predictions most:")
    for name in sorted(shap, key=shap.get, reverse=True)[:5]:
        print(f"  {name:25} {shap[name]:.3f}")
    print("report:", create_xgboost_report(trial, options.report))


if __name__ == "__main__":
    main()
