"""Settings and options that were renamed or removed, each with its new form."""

from __future__ import annotations

import re

# pattern of a setting: the setting that replaces it
_RENAMED = {
    r"noise": "explainer_stability",
    r"metric\.(pgi|pgu)\.(draws|seed)": r"metric.\1.removal.\2",
    r"metric\.(\w+)\.longest": r"metric.\1.max_features",
    r"metric\.(\w+)\.only": r"metric.\1.removals",
    r"explainer\.file\.bad": "explainer.file.invalid_lines",
    r"explainer\.ladder\.rungs": "explainer.graded.quality_levels",
    r"explainer\.(\w+)\.ways(.*)": r"explainer.\1.removals\2",
}

# pattern of a setting: what to do instead; {names} is the value that was given, as a list without brackets
_REPLACED = {
    r"gold": "`gold` was replaced by `truth`: use truth=[{names}].",
    r"explainer\.\w+\.gold": "`{key}` was removed: the explainer uses the first truth of the run, truth=[{names}].",
    r"explainer\.nearest_gold\..*": "`explainer.nearest_gold` was renamed `explainer.nearest_truth`.",
    r"explainer\.ladder\..*": "`explainer.ladder` was renamed `explainer.graded`.",
}

# option of a group: the option that replaces it
_OPTIONS = {
    "explainer": {"ladder": "graded", "nearest_gold": "nearest_truth"},
    "truth": {"centered": "shapley"},
}

# class in a `_target_`: its new name
_CLASSES = {
    "cfeval_cli.dataset.tabular.Table": "cfeval_cli.dataset.tabular.TabularData",
    "cfeval_cli.dataset.text.Table": "cfeval_cli.dataset.text.TextTable",
    "cfeval_cli.dataset.sources.File": "cfeval_cli.dataset.sources.DataFile",
    "cfeval_cli.explainer.constant.Constant": "cfeval_cli.explainer.constant.ConstantScores",
}


def describe_renamed_setting(key: str, value: str = "…") -> str | None:
    """Return the new form of a setting that was renamed or removed; None for any other."""
    for pattern, new in _RENAMED.items():
        if match := re.fullmatch(pattern, key):
            return f"`{key}` was renamed: use {match.expand(new)}={value}."
    message = next((message for pattern, message in _REPLACED.items() if re.fullmatch(pattern, key)), None)
    if message is None:
        return None
    names = [name.strip() for name in value.strip("[]").split(",")]
    names = list(dict.fromkeys(_OPTIONS["truth"].get(name, name) for name in names))
    return message.format(key=key, names=",".join(names))


def describe_renamed_option(group: str, name: str) -> str | None:
    """Return what an option of a group has become; None if it was not renamed."""
    new = _OPTIONS.get(group, {}).get(name)
    return None if new is None else f"`{name}` was replaced by `{new}`: use {group}=[{new}]."


def describe_renamed_class(target: str) -> str | None:
    """Return the new name of a class that a config names; None if it was not renamed."""
    return f"`{target}` was renamed: use `_target_: {_CLASSES[target]}`." if target in _CLASSES else None
