"""Progress on standard error."""

import logging

import pytest

from cfeval_cli.pipeline.progress_display import display_progress


@pytest.mark.parametrize("quiet", [True, False])
def test_lines_elsewhere_than_in_a_terminal(capsys, quiet):
    log = logging.getLogger("cfeval.display")
    log.setLevel(logging.INFO)
    before = list(logging.getLogger().handlers)
    with display_progress(quiet) as progress:
        with progress.track_stage("explain: x", 2) as advance:
            advance(2)
        log.info("data")
        log.warning("beware \x1b[2J")
    err = capsys.readouterr().err
    if quiet:
        assert err == "cfeval: beware \\x1b[2J\n"
    else:
        assert [line.split(" ", 1)[1] for line in err.splitlines()[-2:]] == ["data", "beware \\x1b[2J"]
    assert logging.getLogger().handlers == before
