"""Settings and options that were renamed or removed, each with its new form."""

from __future__ import annotations

from fnmatch import fnmatch

# setting: its new form; {value} is the value that was given, {names} the same as a list without brackets
_SETTINGS = {
    "gold": "`gold` was replaced by `truth`: use truth=[{names}].",
    "noise": "`noise` was renamed `explainer_stability`: use explainer_stability={value}.",
    "metric.pgi.draws": "`metric.pgi.draws` was renamed: use metric.pgi.removal.draws={value}.",
    "metric.pgi.seed": "`metric.pgi.seed` was renamed: use metric.pgi.removal.seed={value}.",
    "metric.pgu.draws": "`metric.pgu.draws` was renamed: use metric.pgu.removal.draws={value}.",
    "metric.pgu.seed": "`metric.pgu.seed` was renamed: use metric.pgu.removal.seed={value}.",
    "explainer.nearest_gold.*": "`explainer.nearest_gold` was renamed `explainer.nearest_truth`.",
    "explainer.*.gold": "`{key}` was removed: the explainer uses the first truth of the run, truth=[{names}].",
}

# option of a group: the option that replaces it
_OPTIONS = {"explainer": {"nearest_gold": "nearest_truth"}, "truth": {"centered": "shapley"}}


def describe_renamed_setting(key: str, value: str = "…") -> str | None:
    """Return the new form of a setting that was renamed or removed; None for any other."""
    message = next((message for pattern, message in _SETTINGS.items() if fnmatch(key, pattern)), None)
    if message is None:
        return None
    names = [name.strip() for name in value.strip("[]").split(",")]
    names = list(dict.fromkeys(_OPTIONS["truth"].get(name, name) for name in names))
    return message.format(key=key, value=value, names=",".join(names))


def describe_renamed_option(group: str, name: str) -> str | None:
    """Return what an option of a group has become; None if it was not renamed."""
    new = _OPTIONS.get(group, {}).get(name)
    return None if new is None else f"`{name}` was replaced by `{new}`: use {group}=[{new}]."
