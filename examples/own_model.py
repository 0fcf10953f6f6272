"""Which explainer should I use for my model?"""

from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from cfeval_cli import evaluate

rows = load_wine(as_frame=True).frame.iloc[:, 7:]  # six features and the label
train, test = train_test_split(rows, test_size=0.3, random_state=0)
model = GaussianNB().fit(train.drop(columns="target"), train["target"])

results = evaluate(
    model.predict_proba, train, test, label="target",
    explainers=["random", "omission", "lime"], metrics=["comprehensiveness", "validity_soft", "recall"],
)  # fmt: skip

print(results.verdict)
scores = results.metrics[(results.metrics["metric"] == "comprehensiveness") & results.metrics["value"].notna()]
print(scores[["explainer", "variant", "value", "value_low", "value_high", "rank"]].to_string(index=False))
print(results.report)  # open it in a browser
