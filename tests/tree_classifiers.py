"""Tree classifiers of several libraries, with settings that make them small."""

TREE_CLASSIFIERS = {
    "sklearn.tree.DecisionTreeClassifier": {"max_depth": 4},
    "sklearn.ensemble.RandomForestClassifier": {"n_estimators": 8, "max_depth": 4},
    "sklearn.ensemble.ExtraTreesClassifier": {"n_estimators": 8, "max_depth": 4},
    "sklearn.ensemble.GradientBoostingClassifier": {"n_estimators": 8},
    "sklearn.ensemble.HistGradientBoostingClassifier": {"max_iter": 8, "min_samples_leaf": 5},
    "lightgbm.LGBMClassifier": {"n_estimators": 8, "min_child_samples": 5, "verbosity": -1},
    "xgboost.XGBClassifier": {"n_estimators": 8, "max_depth": 3},
}
