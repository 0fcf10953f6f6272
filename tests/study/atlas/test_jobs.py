"""The runs of an atlas: which there are, and how far they are."""

import json

from cfeval_cli.study.atlas.jobs import Course, Job, complete, duration, estimate, every, reason


def finished(runs, job, status="complete"):
    folder = runs / job.place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"status": status}))


def test_one_k_comes_after_the_other_so_that_it_finds_what_is_known():
    jobs = every(["pima", "german"], ["atlas_tree", "atlas_mlp"], [0, 1], [1, 3])
    assert len(jobs) == len(set(jobs)) == 16 and [job.k for job in jobs] == ([1] * 4 + [3] * 4) * 2
    assert str(jobs[0].place) == "pima/atlas_tree/0-1"


def test_an_estimate_is_told_for_every_job_and_goes_by_instances_and_cores():
    known, strange = Job("pima", "atlas_tree", 0, 1), Job("nowhere", "atlas_nobody", 0, 1)
    assert known.seconds(1.0) > Job("pima", "atlas_tree", 0, 3).seconds(1.0) > 0 and strange.seconds(1.0) > 0
    assert estimate([known, strange], 0.5, 2) == (known.seconds(1.0) + strange.seconds(1.0)) / 4
    assert [duration(seconds) for seconds in (3, 600, 9000)] == ["a minute", "10 min", "2.5 h"]


def test_how_far_it_is_is_read_from_the_folders(tmp_path):
    jobs = every(["pima"], ["atlas_tree"], [0, 1, 2, 3], [1])
    finished(tmp_path, jobs[0])
    now = [100.0]
    course = Course(jobs, tmp_path, 1.0, 1, lambda: now[0])
    assert course.done == 1 and not course.look()
    finished(tmp_path, jobs[1])
    finished(tmp_path, jobs[2], "failed")
    now[0] += 600  # one of the three that were left took ten minutes
    one = jobs[0].seconds(1.0)  # as the table says: less than a minute
    left = duration(2 * one * (600 + 0.15 * one) / (1.15 * one))
    assert course.look() and course.told() == f"2 of 4 runs, about {left} left"
    assert complete(tmp_path, jobs[1]) and not complete(tmp_path, jobs[2]) and not complete(tmp_path, jobs[3])


def test_one_slow_run_at_the_beginning_does_not_speak_for_all(tmp_path):
    jobs = every(["pima"], ["atlas_tree"], range(100), [1])
    now = [0.0]
    course = Course(jobs, tmp_path, 1.0, 1, lambda: now[0])
    whole, one = estimate(jobs, 1.0, 1), jobs[0].seconds(1.0)
    now[0] += 10 * one
    finished(tmp_path, jobs[0])
    assert course.look()
    assert course.told().endswith(f"about {duration(99 * one * (10 * one + whole / 20) / (one + whole / 20))} left")
    for job in jobs[1:50]:
        finished(tmp_path, job)
    now[0] = 10 * whole / 2  # each of them was as slow
    assert course.look() and course.told().endswith(f"about {duration(whole / 2 * 5.05 / 0.55)} left")


def test_why_a_job_is_not_complete_is_its_last_word(tmp_path):
    job = Job("pima", "atlas_tree", 0, 1)
    assert "before anything was computed" in reason(tmp_path, job)
    finished(tmp_path, job, "failed")
    (tmp_path / job.place / "run.log").write_text("one\nFailure: no \x1b[2Jroom\n")
    assert reason(tmp_path, job).startswith("it is not complete: Failure: no ") and "\x1b" not in reason(tmp_path, job)
