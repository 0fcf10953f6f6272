import pytest

CHOSEN = (
    "explainer=[random,omission,lime,decision_boundary,shap,lr]", "explainer.lime.n_samples=50",
    "n_explain=20", "resamples=0", "removal=[zero,marginal]",
    "metric=[comprehensiveness,sufficiency,dfr,aopc,validity,validity_soft,proximity,c_soft,recall,hit]",
    "truth=[shapley,contrast,signed]", "distance.space=scaled", "incomplete=keep",
)  # fmt: skip


@pytest.fixture(scope="session")
def judged(toy, made):
    """Run folders of two judges."""
    return [made(toy, *CHOSEN, "model.max_epochs=10"), made(toy, *CHOSEN, "model=tree", "k=2")]
