"""The stream of short jobs comes in the published numbers and intervals."""

from collections import Counter

from scheduler.benchmarks.churn import SIZES, plan


def test_stream_has_the_published_numbers() -> None:
    jobs = plan(quotas=30)
    assert len(jobs) == 15_000
    assert Counter(SIZES[job.size].name for job in jobs) == {"small": 10_500, "medium": 3_000, "large": 1_500}
    assert len({job.name for job in jobs}) == len(jobs)


def test_jobs_of_a_quota_come_at_their_interval() -> None:
    times = [job.at_s for job in plan(quotas=2) if job.quota == 1 and SIZES[job.size].name == "large"]
    assert times == [round(1.2 * number, 3) for number in range(50)]


def test_work_of_the_stream_at_full_use_is_66_seconds() -> None:
    core_ms = sum(SIZES[job.size].cores * SIZES[job.size].run_ms for job in plan(quotas=30))
    assert core_ms == 66_000 * 600


def test_part_of_the_stream_is_shorter() -> None:
    assert len(plan(quotas=30, part=0.1)) == 1500
