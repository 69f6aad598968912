"""Plans of faults."""

from tests.torture.fault_plan import KINDS, make_plan


def test_a_seed_gives_the_same_plan_again():
    assert make_plan(7, 120, 4) == make_plan(7, 120, 4) != make_plan(8, 120, 4)


def test_plans_of_ten_seeds_contain_every_kind_of_fault():
    seen = {fault.kind for seed in range(10) for fault in make_plan(seed, 120, 4)}
    assert seen == set(KINDS)


def test_one_worker_at_least_has_no_fault_at_any_moment():
    for seed in range(50):
        plan = [fault for fault in make_plan(seed, 120, 4) if fault.worker >= 0]
        for fault in plan:
            struck = {
                each.worker for each in plan if each.at <= fault.at < max(each.at + each.length_s, each.at + 1e-9)
            }
            assert len(struck) < 4


def test_faults_are_in_order_and_within_the_time():
    plan = make_plan(3, 60, 4)
    assert plan == sorted(plan, key=lambda fault: fault.at) and plan[0].at > 0 and plan[-1].at < 60
