"""The numbers that an estimator is given, beside scikit-learn's own transformers."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from cfeval_cli.model.encoding import BagOfWords, convert_to_numbers, decode_values, make_table_encoder
from tests.model.mixed import AGES, COLOURS, DEBTS, mixed, sentences

DATASET = mixed()
TRAIN, TEST = DATASET.train.codes, DATASET.test.codes


def test_values_are_those_that_a_model_is_given():
    colour, age, debt, flag = decode_values(DATASET)
    assert colour.tolist() == list(COLOURS) and flag.tolist() == ["no", "yes"]
    assert np.allclose(age, AGES, equal_nan=True) and debt.tolist() == list(DEBTS)
    assert convert_to_numbers(colour) is None and convert_to_numbers(pd.Series([True, False])) is None
    assert np.allclose(convert_to_numbers(pd.Series([1, None], dtype="Int64")), [1.0, np.nan], equal_nan=True)


@pytest.mark.parametrize("scale", [True, False])
def test_onehot_columns_are_those_of_scikit_learn(scale):
    scaler = StandardScaler(with_mean=scale, with_std=scale)
    theirs = ColumnTransformer(
        [
            ("c", OneHotEncoder(categories=[list(COLOURS)], sparse_output=False), ["colour"]),
            ("a", make_pipeline(scaler, SimpleImputer(strategy="median")), ["age"]),
            ("d", scaler, ["debt"]),
            ("f", OneHotEncoder(sparse_output=False), ["flag"]),
        ]
    )  # fmt: skip
    wanted = theirs.fit(DATASET.decode(TRAIN)).transform(DATASET.decode(TEST))
    made = make_table_encoder(DATASET, onehot=True, scale=scale, fill=True, max_categories=None).transform(TEST)
    assert made.shape == (len(TEST), 3 + 2 + 1 + 2)
    assert (made[:, 4] == (TEST[:, 1] == 6)).all()  # says where the age is missing
    assert np.delete(made, 4, axis=1) == pytest.approx(wanted)


def test_ordinal_columns_are_those_of_scikit_learn():
    made = make_table_encoder(DATASET, onehot=False, scale=False, fill=False, max_categories=None)
    wanted = OrdinalEncoder(categories=[list(COLOURS)]).fit_transform(DATASET.decode(TEST)[["colour"]])
    assert made.transform(TEST)[:, :1] == pytest.approx(wanted)
    assert np.allclose(made.transform(TEST)[:, 1], DATASET.decode(TEST)["age"], equal_nan=True)
    assert made.is_category.tolist() == [True, False, False, True]
    few = make_table_encoder(DATASET, onehot=False, scale=False, fill=False, max_categories=2)
    assert few.is_category.tolist() == [False, False, False, True]


def test_words_are_counted_as_scikit_learn_counts_them():
    data = sentences()
    words = list(data.features[0].values)
    counter = CountVectorizer(vocabulary=words, tokenizer=str.split, token_pattern=None)
    wanted = counter.fit_transform(data.decode(data.test.codes)).toarray()
    made = BagOfWords(len(words))
    assert (made.transform(data.test.codes).toarray() == wanted).all() and not made.is_category.any()
