"""Encoded columns equal those of the transformers of scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from cfeval_cli.model.encoding import BagOfWords, convert_to_numbers, decode_values, make_table_encoder
from tests.model.mixed import AGES, COLOURS, DEBTS, make_mixed_table, make_sentences

DATASET = make_mixed_table()
TRAIN, TEST = DATASET.train.codes, DATASET.test.codes


def test_values_are_decoded_with_their_types():
    colour, age, debt, flag = decode_values(DATASET)
    assert colour.tolist() == list(COLOURS) and flag.tolist() == ["no", "yes"]
    assert np.allclose(age, AGES, equal_nan=True) and debt.tolist() == list(DEBTS)
    assert convert_to_numbers(colour) is None and convert_to_numbers(pd.Series([True, False])) is None
    assert np.allclose(convert_to_numbers(pd.Series([1, None], dtype="Int64")), [1.0, np.nan], equal_nan=True)


@pytest.mark.parametrize("scale", [True, False])
def test_onehot_columns_are_those_of_scikit_learn(scale):
    scaler = StandardScaler(with_mean=scale, with_std=scale)
    reference = ColumnTransformer(
        [
            ("c", OneHotEncoder(categories=[list(COLOURS)], sparse_output=False), ["colour"]),
            ("a", make_pipeline(scaler, SimpleImputer(strategy="median")), ["age"]),
            ("d", scaler, ["debt"]),
            ("f", OneHotEncoder(sparse_output=False), ["flag"]),
        ]
    )  # fmt: skip
    expected = reference.fit(DATASET.decode(TRAIN)).transform(DATASET.decode(TEST))
    columns = make_table_encoder(DATASET, onehot=True, scale=scale, fill=True, max_categories=None).transform(TEST)
    assert columns.shape == (len(TEST), 3 + 2 + 1 + 2)
    assert (columns[:, 4] == (TEST[:, 1] == 6)).all()  # the indicator of missing ages
    assert np.delete(columns, 4, axis=1) == pytest.approx(expected)


def test_ordinal_columns_are_those_of_scikit_learn():
    encoder = make_table_encoder(DATASET, onehot=False, scale=False, fill=False, max_categories=None)
    expected = OrdinalEncoder(categories=[list(COLOURS)]).fit_transform(DATASET.decode(TEST)[["colour"]])
    assert encoder.transform(TEST)[:, :1] == pytest.approx(expected)
    assert np.allclose(encoder.transform(TEST)[:, 1], DATASET.decode(TEST)["age"], equal_nan=True)
    assert encoder.is_category.tolist() == [True, False, False, True]
    encoder_of_few_categories = make_table_encoder(DATASET, onehot=False, scale=False, fill=False, max_categories=2)
    assert encoder_of_few_categories.is_category.tolist() == [False, False, False, True]


def test_word_counts_equal_those_of_scikit_learn():
    data = make_sentences()
    words = list(data.features[0].values)
    counter = CountVectorizer(vocabulary=words, tokenizer=str.split, token_pattern=None)
    expected = counter.fit_transform(data.decode(data.test.codes)).toarray()
    encoder = BagOfWords(len(words))
    assert (encoder.transform(data.test.codes).toarray() == expected).all() and not encoder.is_category.any()
