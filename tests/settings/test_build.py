"""Every yaml composes and instantiates, every component has a yaml and a test, and wrong settings are named."""

import importlib
import inspect
import pkgutil
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from cfeval_cli.core import Access, BlackBox, Classifier, ModelSpec
from cfeval_cli.errors import UserError
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.settings import build
from cfeval_cli.settings.plan import Absences
from tests import inside
from tests.inside import CONF
from tests.problems import make_dataset, make_mixed, make_text

YAMLS = sorted(path.relative_to(CONF) for path in CONF.glob("*/*.yaml") if path.parent.name != "experiment")
SIX = ["random", "omission", "lime", "anchor", "decision_boundary", "lr"]
RUNGS = [f"graded_{share}" for share in ("1", "0.9", "0.8", "0.7", "0.6", "0.5", "0.4", "0.3", "0.2", "0.1", "0")]
METRICS = ["comprehensiveness", "sufficiency", "dfr", "validity", "proximity", "c", "validity_soft", "c_soft", "recall"]
METRICS += ["hit", "fixed", "converged", "coverage"]  # of the paper
CORE = [*METRICS, "proximity_flips", "edits_to_flip", "pgi"]
FIELD = [*CORE, "aopc", "aopc_suff", "pgu", "frozen", "axe", "faithfulness_correlation", "infidelity", "plausible"]
FIELD += ["redundant", "sparsity", "naopc"]
STANDS_FOR = {
    ("explainer", "paper"): {*SIX},
    ("explainer", "field"): {"shap", "against", "lr"},
    ("explainer", "graded"): {*RUNGS},
    ("explainer", "file"): {"metrics"},
    ("metric", "paper"): {*METRICS},
    ("metric", "core"): {*CORE},
    ("metric", "field"): {*FIELD},
    ("metric", "dfr_deleted"): {"dfr"},
    ("explainer", "lime_package"): {"lime"},
}
PRESETS = ("paper", "core", "field")  # which stand for others
MULTIPLE_GROUPS = ("explainer", "metric", "truth", "removal", "judge")  # groups of which a run has more than one
VERB = {
    "explainer": "fit", "metric": "score", "search": "find", "distance": "fit", "model": "fit", "dataset": "load",
    "executor": "map", "cache": "known", "truth": "importance", "removal": "fit", "judge": "trainable",
}  # fmt: skip


plan = inside.make_plan


# what a config is composed with where it does not matter: fewer files are read
DEFAULTS = {"explainer": "[random]", "metric": "[validity]", "removal": "[zero]", "truth": "[signed]"}


def select_component(group, name, *options):
    """One component, and few others beside it."""
    components = DEFAULTS | {group: f"[{name}]" if group in MULTIPLE_GROUPS else name}
    return [*(f"{key}={value}" for key, value in components.items()), *options]


def components():
    """Every public class of a component package that has the verb of its group."""
    for group, verb in VERB.items():
        package = importlib.import_module(f"cfeval_cli.{group}")
        for module in pkgutil.iter_modules(package.__path__):
            component_module = importlib.import_module(f"cfeval_cli.{group}.{module.name}")
            for name, member in inspect.getmembers(component_module, inspect.isclass):
                component = hasattr(member, verb) or hasattr(member, "members")  # or one entry for several
                own = member.__module__ == component_module.__name__ and not name.startswith("_")
                own = own and not inspect.isabstract(member)  # which several share
                if component and own and name != "GradedControl":  # which GradedControls makes
                    yield group, f"{component_module.__name__}.{name}"


@pytest.mark.parametrize("path", YAMLS, ids=str)
def test_every_yaml_composes_and_instantiates(path):
    group, name = path.parts[0], path.stem
    built_plan = build.build_plan(compose_component_run(group, name))
    assert (
        (STANDS_FOR.get((group, name), {name}) <= {*getattr(built_plan, f"{group}s")})
        if group in MULTIPLE_GROUPS
        else getattr(built_plan, group) is not None
    )


# settings without a default
EXISTING_FILE = Path(__file__).parents[1] / "end_to_end" / "before" / "table" / "metrics.csv"  # any file
NEEDS = {("explainer", "file"): [f"explainer.file.path={EXISTING_FILE}"], ("metric", "hit"): ["agreement=hit"]}
NEEDS |= {("model", name): ["model.path=mine"] for name in ("function", "onnx", "skops")}


KEYS = {
    "dfr_deleted": "dfr",
    "lime_package": "lime",
}  # files with the name of another file's component, which they replace


def compose_component_run(group, name):
    """The config of a run with one component of its group."""
    return inside.compose_config(*select_component(group, name, *NEEDS.get((group, name), [])))


def get_component_config(group, name):
    """Return the settings of one component of a run."""
    cfg = compose_component_run(group, name)
    return cfg[group][KEYS.get(name, name)] if group in MULTIPLE_GROUPS else cfg[group]


@pytest.mark.parametrize(("group", "target"), list(components()))
def test_every_component_has_a_test_and_a_yaml_with_all_settings(group, target):
    names = [path.stem for path in YAMLS if path.parts[0] == group and path.stem not in PRESETS]
    module = target.split(".")[2]  # most often the yaml is named as the module is
    names.sort(key=lambda name: name != module)
    nodes = [next((node for name in names if (node := get_component_config(group, name))._target_ == target), None)]
    nodes = [node for node in nodes if node is not None]
    assert nodes, f"no yaml in conf/{group} has _target_: {target}"
    fields = [f.name for f in get_class(target).__dataclass_fields__.values()]
    if group != "dataset":  # a table's yaml describes its data and may leave defaults out
        assert sorted(set(nodes[0]) - {"_target_"}) == sorted(fields)
    module, _, name = target.rpartition(".")
    tests = "".join(path.read_text() for path in (Path(__file__).parents[1] / group).glob("test_*.py"))
    assert f"from {module} import" in tests and name in tests, f"tests/{group} has no test of {name}"


def test_a_component_has_the_name_of_its_file():
    for path in YAMLS:
        if path.parts[0] in MULTIPLE_GROUPS:
            keys = {key for key in OmegaConf.load(CONF / path) if key != "defaults"}
            assert keys <= {KEYS.get(path.stem, path.stem)}


def test_graded_and_paper_expand_to_several_explainers():
    assert list(plan("explainer=[paper,graded]").explainers) == SIX + RUNGS
    built_plan = plan("explainer=[graded,lr]", "explainer.graded.quality_levels=3", "truth=[contrast]")
    assert (
        list(built_plan.explainers) == ["lr", "graded_1", "graded_0.5", "graded_0"]
        and built_plan.graded_truth == "contrast"
    )
    assert plan("explainer=lr").graded_truth == ""
    assert len(plan("explainer=graded", "explainer.graded.quality_levels=501").explainers) == 501


@pytest.mark.parametrize(
    ("name", "dataset", "k", "explainers", "levels"),
    [
        ("table1_adults", "adults", 1, SIX, (Access.LABEL, Access.PROBABILITY)),
        ("table1_movie_reviews", "movie_reviews", 1, SIX, (Access.GRADIENT,)),
        ("table3", "adults", 2, ["random", "lime", "anchor", "lr"], (Access.LABEL, Access.PROBABILITY)),
    ],
)
def test_the_papers_experiments(name, dataset, k, explainers, levels):
    built_plan = plan(f"experiment={name}", "seed=3")
    assert list(built_plan.removals) == ["zero", "mask"] and built_plan.metrics["dfr"].removals == ["zero"]
    default = [name for name in plan().metrics if name in METRICS]  # the others the paper does not have
    assert list(built_plan.metrics) == default and list(built_plan.truths) == [
        "signed",
        "shapley",
        "contrast",
        "absolute",
    ]
    assert (built_plan.dataset.name, built_plan.settings.k, list(built_plan.explainers), built_plan.levels) == (
        dataset,
        k,
        explainers,
        levels,
    )
    assert built_plan.settings.seed == 3 and built_plan.explainers["lr"].truth_name == "signed"
    assert plan(f"experiment={name}", "k=3").settings.k == 3  # the command line has the last word
    papers = ["table1_adults", "table1_movie_reviews", "table3"]
    assert sorted(path.stem for path in (CONF / "experiment").glob("table*.yaml")) == papers


def test_lime_ranks_by_signed_score_and_in_the_papers_experiments_by_absolute_score():
    assert plan("explainer=lime").explainers["lime"].order == "signed"
    papers = ("explainer=paper", "experiment=table1_adults", "experiment=table1_movie_reviews", "experiment=table3")
    assert {plan(experiment).explainers["lime"].order for experiment in papers} == {"absolute"}
    lime_explainers = plan("explainer=[lime,lime_absolute]").explainers
    assert [explainer.title for explainer in lime_explainers.values()] == ["LIME", "LIME (by size)"]
    assert (
        lime_explainers["lime_absolute"].order == "absolute" and lime_explainers["lime_absolute"].samples_of == "lime"
    )
    assert "lime_absolute" not in plan().explainers and plan("explainer=paper").explainers["lime"].title == "LIME"


def test_truths_and_removals_are_chosen_as_explainers_are():
    built_plan = plan(
        "truth=[contrast,signed]",
        "removal=[marginal,zero]",
        "removal.marginal.draws=7",
        "seed=5",
    )
    assert list(built_plan.truths) == ["contrast", "signed"] and list(built_plan.removals) == ["zero", "marginal"]
    assert (built_plan.removals["marginal"].draws, built_plan.removals["marginal"].seed) == (7, 5)
    assert list(plan().truths) == ["shapley", "contrast"]
    assert list(plan().removals) == ["zero", "mask", "marginal"]
    omission = plan("removal=[mask]", "explainer=omission").explainers["omission"]
    assert set(omission.removals) == {"zero", "mask", "mean", "marginal"}  # whatever the metrics use
    lr = plan("truth=[contrast]", "explainer=lr").explainers["lr"]
    assert lr.truth == built_plan.truths["contrast"]


def test_settings_of_a_removal_reach_the_explainers_that_use_it():
    names = [f"omission{name}" for name in ("", "_marginal", "_mask", "_mean", "_zero")]
    names += ["gradient_input", "integrated_gradients"]
    overrides_of_all = f"explainer=[{','.join(names)}]"
    for overrides, expected in (
        (["removal.marginal.draws=7", "removal.marginal.seed=3"], (7, 3)),
        (["seed=5"], (100, 5)),
        (["removal=zero", "seed=5"], (100, 5)),  # the metrics do not remove in this way
    ):
        explainers = plan(overrides_of_all, *overrides).explainers
        removals = [explainers[name].removals["marginal"] for name in names]
        assert {(removal.draws, removal.seed) for removal in removals} == {expected}
        assert {tuple(sorted(explainers[name].removals)) for name in names} == {("marginal", "mask", "mean", "zero")}


@pytest.mark.parametrize("group", ["Truth", "Removal", "Explainer", "Search", "Distance", "Metric", "Trainable"])
def test_a_component_of_another_kind_is_refused(group):
    keys = {"Trainable": "model", "Search": "search", "Distance": "distance"}
    multiple = {
        "Truth": "truth.signed",
        "Removal": "removal.zero",
        "Explainer": "explainer.random",
        "Metric": "metric.c",
    }
    key = keys.get(group) or multiple[group]
    cfg = inside.compose_config("truth=[signed]")
    OmegaConf.update(cfg, key, {"_target_": "pathlib.PurePosixPath"}, merge=False)
    with pytest.raises(
        UserError, match=rf"{key}: pathlib\.PurePosixPath is not a {group}: .*(derive it from|have fit)"
    ):
        build.build_plan(cfg)


def test_the_order_of_the_command_line_does_not_matter():
    assert list(plan("explainer=[lr,random,lime]").explainers) == ["random", "lime", "lr"]
    assert list(plan("metric=[c,dfr]").metrics) == ["dfr", "c", "fixed", "converged", "coverage"]


@pytest.mark.parametrize("experiment", ["table1_adults", "table1_movie_reviews", "table3"])
def test_the_papers_experiments_score_each_explainer_on_its_own_instances(experiment):
    built_plan = plan(f"experiment={experiment}")
    assert (built_plan.settings.support, built_plan.settings.resamples) == ("own", 2000) and set(
        built_plan.metrics
    ) == set(METRICS)


def test_by_default_support_is_common_and_resamples_are_automatic():
    assert (plan().settings.support, plan().settings.resamples) == ("common", "auto")
    assert "proximity_flips" in plan().metrics and plan("resamples=0").settings.resamples == 0
    assert [
        name for name, explainer in plan("explainer=[paper,graded]").explainers.items() if explainer.is_control
    ] == [
        "random",
        "lr",
    ]


def test_fixed_converged_and_coverage_are_part_of_every_run():
    assert list(plan("metric=[c]").metrics) == ["c", "fixed", "converged", "coverage"]


def test_searches_in_embeddings_refuse_features_with_a_direction():
    dataset = make_mixed(0, n=12)
    number = next(j for j, feature in enumerate(dataset.features) if feature.kind == "number")
    features = [replace(f, allowed_change="down" if j == number else "any") for j, f in enumerate(dataset.features)]
    spec = ModelSpec(replace(dataset, features=tuple(features)), LinearModel)
    assert plan("search=discrete").restrict_to(spec)
    name = features[number].name
    for search in ("continuous", "exact"):
        with pytest.raises(UserError, match=rf"dataset\.only\.{name}=down: a moved embedding.*search=discrete"):
            plan(f"search={search}").restrict_to(spec)


def test_settings_reach_the_components():
    built_plan = plan("explainer=[lime]", "explainer.lime.n_samples=77", "truth=[contrast]", "k=3", "n_explain=9")
    assert (built_plan.explainers["lime"].n_samples, built_plan.settings.explainer_stability) == (77, "auto")
    assert (list(built_plan.truths), built_plan.settings.k, built_plan.settings.n_explain) == (["contrast"], 3, 9)
    assert plan("truth=[shapley]", "explainer=lr").explainers["lr"].truth_name == "shapley"


def test_access_limits_the_search_and_the_metrics_but_not_the_truth():
    built_plan = plan("access=label")
    assert built_plan.levels == (Access.LABEL,)
    assert built_plan.absent.metrics == dict.fromkeys(
        ["comprehensiveness", "sufficiency", "validity_soft", "c_soft", "pgi", "edits_to_flip"],
        "needs probability access",
    )
    remaining = {
        "dfr",
        "validity",
        "proximity",
        "proximity_flips",
        "c",
        "recall",
        "hit",
        "fixed",
        "converged",
        "coverage",
    }
    assert set(built_plan.metrics) == remaining
    assert plan("access=probability").levels == (Access.LABEL, Access.PROBABILITY)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["k=0"], "k must be at least 1, not 0"),
        (["k=1.5"], "k must"),
        (["k="], "k must"),
        (["k=null"], "k must"),
        (["n_explain=-3"], "n_explain must"),
        (["seed=-1"], "seed must"),
        (["access=all"], "access must be one of"),
        (["agreement=f1", "metric=[c,recall]"], "agreement must be one of"),
        (["incomplete=drop"], "incomplete must be one of"),
        (["removal.marginal.draws=0"], "removal.marginal: draws must"),
        (
            ["explainer.omission.removal=burn"],
            "explainer.omission: removal must be one of auto, marginal, mask, mean, zero",
        ),
        (["access=label", "metric=[c_soft]"], "leaves no metric"),
        (["access=label", "metric=[c_soft,recall,coverage]"], "leaves no metric"),
        (["agreement=hit", "metric=[c,recall]"], "agreement must be one of the ground-truth metrics of metric="),
        (["search=continuous", "search.alpha=0"], "search: alpha must be a number over 0"),
        (["search=continuous", "search.alpha=-3"], "search: alpha must"),
        (["search=continuous", "search.optimizer=sgd"], "search: optimizer must be one of descent, adam"),
        (["search=continuous", "access=probability"], "access=probability is not enough"),
        (["dataset=movie_reviews", "dataset.search_words=0"], "dataset: search_words must"),
        (["access=label", "search.pick=largest_drop"], "access=label is not enough"),
        (["explainer.lime.n_samples=0"], "explainer.lime: n_samples must"),
        (["search.max_candidates=none"], "search: max_candidates must"),
        (["explainer.lime._target_=nowhere.Lime"], "explainer.lime: .*nowhere"),
        (["explainer.lime._target_=null"], "explainer.lime"),
        (
            ["explainer=graded", "explainer.graded.quality_levels=1"],
            "explainer.graded: quality_levels must be a whole number of at least 2",
        ),
        (
            ["explainer=graded", "explainer.graded.quality_levels=2000"],
            "explainer.graded: quality_levels must be at most 1001",
        ),
        (["resamples=-1"], "resamples must"),
        (["figures=png"], "figures must be a list such as"),
        (["figures=[gif]"], "figures must be one of png, svg, pdf"),
        (["report=maybe"], "report must be true or false"),
        (["explainer_stability=-1"], "explainer_stability must be at least 0 or auto, not -1"),
        (["bounds=true"], "bounds must be a whole number, not True"),
        (["training=-1"], "training must be at least 0"),
        (["resamples=many"], "resamples must"),
        (["resamples=99"], "resamples must be 0, auto or at least 100"),
        (["resamples=null"], "resamples must be a whole number or auto, not None"),
        (["support=all"], "support must be one of common, own"),
        (["confidence=95"], "confidence must be at most 0.9999, not 95"),
        (["redo=yes please"], "redo must be true or false"),
        (["n_jobs=0"], "executor: n_jobs must be a whole number of at least 1, or -1 for all cores"),
        (["n_jobs=two"], "executor: n_jobs must"),
        (["cache.max_mb=0"], "cache: max_mb must"),
        (["timeout_model=0"], "timeout_model must be at least 0.001"),
        (["timeout_per_instance=soon"], "timeout_per_instance must be a number"),
        (["+typo=1"], "there is no setting 'typo', and nothing refers to it"),
        (["++sed=1"], r"there is no setting 'sed', and nothing refers to it. Did you mean seed\?"),
        (
            ["+explainer.lime.n_sample=1"],
            r"explainer.lime has no setting 'n_sample'. Did you mean n_samples",
        ),
        (
            ["~explainer.lr.truth"],
            "explainer.lr lacks the setting 'truth', which cfeval_cli.explainer.lr.Lr needs",
        ),
        (["+dataset.file.colour=red"], "dataset.file has no setting 'colour'"),
        (["+dataset.features.age.width=3"], "dataset.features.age has no setting 'width'. It has none"),
        (["~dataset.label"], "dataset lacks the setting 'label'"),
        (["+model.learning_rate.txt=1"], "model: learning_rate has no kind 'txt'. The kinds are tabular, text"),
        (["model=estimator", "+model.estimator.colour=red"], "model.estimator has no setting 'colour'"),
        (["model=estimator", "model.estimator._target_=sklearn.nowhere.Tree"], "model: .*sklearn.nowhere"),
        (
            ["model=estimator", "model.estimator._target_=sklearn.linear_model.Ridge"],
            "model: estimator must be a classifier, but Ridge is for",
        ),
        (
            ["model=estimator", "model.estimator._target_=pathlib.Path"],
            "model: estimator must be a classifier with fit and predict, and PosixPath",
        ),
        (["model=function"], "model: path must be given: model.path=score.py:predict_proba names a file"),
        (["model=onnx"], "model: path must be given"),
        (["model=skops"], "model: path must be given"),
        (["explainer=[file]"], "explainer.file: path must be given"),
        (["truth=[]"], r"truth=\[\] chooses nothing\. Name at least one, for example truth=\[shapley,contrast\]"),
        (
            ["explainer=[file]", "explainer.file.path=nowhere"],
            "explainer.file.path: there is no file or folder nowhere",
        ),
        (["explainer=[file]", "explainer.file.path=/"], "explainer.file: path: the folder / has no file of .csv"),
    ],
)
def test_invalid_settings_are_refused(overrides, message):
    text = " ".join(overrides)
    beside = [
        f"{key}={value}" for key, value in DEFAULTS.items() if key not in text
    ]  # few others, where none is spoken of
    with pytest.raises(UserError, match=message):
        plan(*beside, *overrides)


@pytest.mark.parametrize("group", ["explainer", "metric", "truth", "removal"])
def test_an_empty_group_is_refused(group):
    with pytest.raises(UserError, match=rf"{group}=\[\] chooses nothing"):
        plan(f"{group}=[]")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["k=4"], "k=4 exceeds the 3 features of toy. Use k ≤ 3"),
        (["n_explain=21"], "n_explain=21 is more than the 20 test instances"),
        (["explainer.omission.removal=mask"], "explainer.omission: removal=mask"),
        (["search=exact", "distance.space=onehot"], "distance.space=onehot cannot measure edited embeddings"),
    ],
)
def test_settings_that_the_data_do_not_allow_are_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        plan(*overrides).restrict_to(ModelSpec(make_dataset([4, 3, 2]), LinearModel))


def test_a_key_that_another_setting_refers_to_is_accepted():
    assert plan("+mine=3", "k=${mine}").settings.k == 3
    assert plan("+mine={a:4}", "k=${mine.a}").settings.k == 4


def test_messages_name_the_file_if_hydra_knows_it():
    from types import SimpleNamespace

    choices = {"dataset": "adults", "explainer": ["lime", "lr"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build.HydraConfig, "initialized", lambda: True)
        patch.setattr(build.HydraConfig, "get", lambda: SimpleNamespace(runtime=SimpleNamespace(choices=choices)))
        for override, message in (
            ("+dataset.file.colour=red", r"dataset.file \(dataset/adults.yaml\) has no setting 'colour'"),
            ("+explainer.lime.x=1", r"explainer.lime \(explainer/lime.yaml\) has no setting 'x'"),
        ):
            with pytest.raises(UserError, match=message):
                plan(override)


def test_field_has_all_applicable_explainers_and_reasons_for_the_others():
    """Whatever explainer there is, but for those that stand for others, are made from the same, or need a file."""
    field = set(plan("explainer=field").explainers)
    yamls = {path.stem for path in YAMLS if path.parts[0] == "explainer"}
    assert yamls - field == {"paper", "field", "graded", "file", "omission", "lime_package"} and field <= yamls
    table, text = make_dataset([4, 3, 2]), make_text()
    built_plan = plan("explainer=field").restrict_to(ModelSpec(table, LinearModel))
    assert len(built_plan.explainers) == 16 and built_plan.absent.explainers == {
        "omission_mask": "toy has no mask token"
    }
    text_plan = plan("explainer=field", "search=continuous").restrict_to(ModelSpec(text, LinearModel))
    assert len(text_plan.explainers) == 16 and list(text_plan.absent.explainers) == ["nearest_truth"]
    black = plan("explainer=field").restrict_to(ModelSpec(table, BlackBox))
    able = {
        "random",
        "omission_marginal",
        "lime",
        "lime_absolute",
        "anchor",
        "decision_boundary",
        "shap",
        "shap_kernel",
    }
    assert set(black.explainers) == able and set(black.absent.explainers) == field - able
    assert all("needs" in reason or "no mask" in reason for reason in black.absent.explainers.values())
    controls = {name for name, explainer in built_plan.explainers.items() if explainer.is_control}
    assert controls == {"random", "against", "constant", "nearest_truth", "lr"}


@pytest.mark.parametrize("kind", ["ProbabilityModel", "LabelModel"])
def test_an_external_model_is_explained_by_applicable_explainers(kind):
    from cfeval_cli.model import external

    built_plan = plan().restrict_to(ModelSpec(make_dataset([4, 3, 2]), getattr(external, kind)))
    able = ["random", "omission", "lime", "anchor", "decision_boundary"]
    assert list(built_plan.explainers) == (
        able if kind == "ProbabilityModel" else ["random", "anchor", "decision_boundary"]
    )
    labels_only, needs_evaluations = (
        "but this model returns labels only",
        "needs model evaluations for every instance (shapley)",
    )
    reason = labels_only if kind == "LabelModel" else needs_evaluations
    assert reason in built_plan.absent.explainers["lr"]
    assert list(built_plan.truths) == (["shapley", "contrast"] if kind == "ProbabilityModel" else [])


def test_a_white_box_has_all_explainers_and_lacks_only_removals_that_need_a_mask():
    spec = ModelSpec(make_dataset([4, 3, 2]), LinearModel)
    built_plan = plan().restrict_to(spec)
    assert list(built_plan.explainers) == SIX and list(built_plan.metrics) == list(plan().metrics)
    truths = {"used": "needs a model that was trained without some of the features (model.blind)"}
    assert plan("truth=[signed,used]").restrict_to(spec).absent.truths == truths
    assert built_plan.absent == Absences(removals={"mask": "toy has no mask token"})
    assert list(built_plan.truths) == ["shapley", "contrast"]
    assert built_plan.levels == (Access.LABEL, Access.PROBABILITY)


def test_a_black_box_has_the_explainers_that_need_probabilities_only():
    spec = ModelSpec(make_dataset([4, 3, 2]), BlackBox)
    built_plan = plan("truth=[signed,shapley,contrast,absolute,used]").restrict_to(spec)
    assert list(built_plan.explainers) == ["random", "omission", "lime", "anchor", "decision_boundary"]
    assert set(built_plan.absent.explainers) == {"lr"} and set(built_plan.absent.removals) == {"zero", "mask"}
    assert list(built_plan.truths) == ["shapley", "contrast"]
    assert set(built_plan.absent.truths) == {"signed", "absolute", "used"} and built_plan.absent.metrics == {}
    assert built_plan.levels == (Access.LABEL, Access.PROBABILITY)
    assert all("black box" in built_plan.absent.truths[name] for name in ("signed", "absolute"))
    without_truth = plan("truth=[signed,used]").restrict_to(spec)
    assert without_truth.truths == {} and set(without_truth.absent.metrics) == {"recall", "hit"}
    assert not {"recall", "hit"} & set(without_truth.metrics)


class LabelOnlyClassifier(Classifier):
    """Tells classes and nothing else."""

    def predict(self, codes):
        raise AssertionError


def test_a_model_of_labels_only_is_searched_with_labels():
    built_plan = plan().restrict_to(ModelSpec(make_dataset([4, 3, 2]), LabelOnlyClassifier))
    assert list(built_plan.explainers) == ["random", "anchor", "decision_boundary"]
    assert built_plan.levels == (Access.LABEL,)
    judged_metrics = {name for name, metric in built_plan.metrics.items() if metric.role == "judged"}
    assert judged_metrics == {"dfr", "validity", "proximity", "proximity_flips", "c"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["search=continuous"], "search: .*gradients"),
        (["search=exact"], "search: exact search .*linear"),
        (["distance.space=embedding"], "distance.space=embedding .*embeddings"),
        (["explainer=[lr]"], "no explainer is applicable to this model: lr "),
        (["explainer=[omission]", "explainer.omission.removal=zero"], "explainer.omission: removal=zero"),
        (["search.pick=largest_drop", "model=logistic"], None),
    ],
)
def test_settings_that_a_black_box_does_not_allow_are_refused(overrides, message):
    spec = ModelSpec(make_dataset([4, 3, 2]), BlackBox)
    if message is None:
        assert plan(*overrides).restrict_to(spec).levels == (Access.PROBABILITY,)
        return
    with pytest.raises(UserError, match=message):
        plan(*overrides).restrict_to(spec)
