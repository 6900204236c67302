"""Fits XGBoost's regressor to scikit-learn's diabetes data, with early stopping and a hook."""

import argparse

import xgboost as xgb
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

import tornasole.xgboost as smd


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="at most")
    parser.add_argument("--patience", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out-dir", required=True)
    return parser.parse_args()


def main():
    options = parse_options()
    data = load_diabetes(as_frame=True)
    seen_x, unseen_x, seen_y, unseen_y = train_test_split(
        data.data, data.target, test_size=0.3, random_state=options.seed
    )

    # Metrics are always saved: here every round, and every fifth what is asked for.
    hook = smd.Hook(
        out_dir=options.out_dir,
        include_collections=["feature_importance", "predictions", "labels"],
        validation_data=xgb.DMatrix(unseen_x, label=unseen_y),
        save_config=smd.SaveConfig(save_interval=5),
    )
    hook.get_collection("metrics").save_config = smd.SaveConfig(save_interval=1)
    model = xgb.XGBRegressor(
        n_estimators=options.rounds,
        learning_rate=0.1,
        max_depth=3,
        random_state=options.seed,
        early_stopping_rounds=options.patience,
        callbacks=[hook],
    )
    model.fit(seen_x, seen_y, eval_set=[(seen_x, seen_y), (unseen_x, unseen_y)], verbose=False)
    hook.close()
    print(f"best round {model.best_iteration}: rmse {model.best_score:.2f}")

    # How far the model has learned its own rows by heart, from what was saved.
    trial = smd.create_trial(options.out_dir)
    seen = trial.tensor("validation_0-rmse").values()
    unseen = trial.tensor("validation_1-rmse").values()
    for step in range(0, len(seen), options.patience):
        print(f"round {step}: seen {seen[step]:.2f}, unseen {unseen[step]:.2f}")


if __name__ == "__main__":
    main()
