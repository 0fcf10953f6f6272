import pytest

JUDGE_RUN = (
    "explainer=[random,omission,lime,decision_boundary,shap,lr]", "explainer.lime.n_samples=50",
    "n_explain=20", "resamples=0", "removal=[zero,marginal]",
    "metric=[comprehensiveness,sufficiency,dfr,aopc,validity,validity_soft,proximity,c_soft,recall,hit]",
    "truth=[shapley,contrast,signed]", "distance.space=scaled", "incomplete=keep",
)  # fmt: skip


@pytest.fixture(scope="session")
def judge_runs(toy, make_run):
    """Run folders of two judges."""
    return [make_run(toy, *JUDGE_RUN, "model.max_epochs=10"), make_run(toy, *JUDGE_RUN, "model=tree", "k=2")]
